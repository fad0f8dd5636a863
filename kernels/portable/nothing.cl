// A kernel that does nothing: what a launch costs (`anyaccel bench launch`).
#include "dialect.h"

AA_KERNEL(nothing, 1)(AA_VALUE(aa_i32) unused) { (void)unused; }
AA_REGISTER(nothing, 1)
