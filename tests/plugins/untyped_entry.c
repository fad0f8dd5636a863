/* Its entry point is a name in the data, without a type. */
__asm__(
    ".data\n"
    ".globl anyaccel_driver_query\n"
    "anyaccel_driver_query:\n"
    ".quad 0\n"
    ".text\n");
