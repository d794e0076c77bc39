export { default } from "@novnc/novnc";
