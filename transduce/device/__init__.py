"""Devices: memory, host-to-device copies, capture. One file each; nothing else tests what device it runs on."""
