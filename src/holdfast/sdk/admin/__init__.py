"""What an operator manages: images and keys. Only the SDK imports this package; users import ``holdfast.sdk``."""
