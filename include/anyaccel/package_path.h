// Records in a program where the package that it was compiled with is installed.
//
// The library reads files of its package at run time: sources of ops, headers, plugins. It finds them relative to the
// running program if that is installed in the package, else relative to the path of this header, which is compiled into
// the program. anyaccel/device.h and anyaccel/op_builder.h, and with them every header through which a program uses an
// accelerator, include this one; programs need not call anything.
#pragma once

#ifndef ANYACCEL_BUILDS_THE_LIBRARY
extern "C" inline __attribute__((used)) const char* anyaccel_header_path() { return __FILE__; }
#endif
