// The types that mpi_messages.cpp and its caller, src/comm/mpi, share. No type of MPI appears here, so the library need not be
// built against any MPI. The functions return 0, or 1 with MPI's error message in `words`.
#pragma once

#include <stddef.h>
#include <stdint.h>

// An error message.
struct aa_mpi_words {
  char text[512];
};

// What MPI says of this process and of itself.
struct aa_mpi_world {
  int32_t rank;  // in MPI_COMM_WORLD
  int32_t size;
  int32_t several_threads;  // whether threads may call MPI at the same time
  int32_t largest_tag;
  char library[256];  // "Open MPI v4.1.4, package: ..."
};

// A group of processes, and a message in progress. The messages of collectives (lane 0) and those that have a tag of the user
// (lane 1) travel in separate communicators, so that neither can match the other.
struct aa_mpi_group;
struct aa_mpi_message;
