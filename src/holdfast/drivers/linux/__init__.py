"""What drivers of this machine share: facts that the Linux kernel knows."""
