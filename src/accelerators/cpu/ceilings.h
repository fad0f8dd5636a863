// Measures the ceilings of this machine: the rates that the CPU kernels can reach at most. `anyaccel bench` states
// every speed as a share of the matching one, since absolute figures differ from machine to machine and from hour to
// hour.
//
// All run on every thread of the worker pool with the instruction set in use (cpu_features.h), repeat for about
// `seconds` and return the best repetition. They throw InvalidArgument for sizes or times that are not positive, and
// std::bad_alloc.
#pragma once

#include <cstddef>

namespace anyaccel::cpu {

// Bytes read per second from `bytes` of memory holding random data, by the best of several ways to read (streams side
// by side, prefetch distances). Give at least a few times the last level cache: 1 GiB or more. The time to allocate and
// fill the memory, up to seconds per GiB on a virtual machine, comes on top, but not if as much was asked for the last
// time: the memory is kept until the process ends. Measurements of the read and the copy wait for each other.
double best_read_bandwidth(size_t bytes, double seconds);

// Bytes read plus bytes written per second when `bytes` are copied to another place, by the best of several ways.
// Uses the memory of the read and as much again, which is kept too.
double best_copy_bandwidth(size_t bytes, double seconds);

// Floating point operations per second of F32 multiply-adds (two each) on registers, sustained over `seconds`: the rate
// of cores that keep multiplying. A burst of milliseconds on idle cores can run a quarter faster.
double fma_rate(double seconds);

// The same for products of bf16 by the matrix unit on tiles that are loaded once; 0 if the instruction set in use has none.
double matrix_unit_rate(double seconds);

}  // namespace anyaccel::cpu
