/* Its entry point is a table, not a function. */
__attribute__((visibility("default"))) const long anyaccel_driver_query[8] = {1, 2, 3};
