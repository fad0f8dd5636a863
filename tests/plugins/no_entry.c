/* A shared library that is no plugin: it lacks the symbol. */
__attribute__((visibility("default"))) int an_unrelated_symbol = 1;
