// Arguments of the functions of mpi_messages.cpp, which return 0, or 1 with MPI's error message in `words`.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct aa_mpi_words {
  char text[512];
};

// MPI's description of the process.
struct aa_mpi_world {
  int32_t rank;  // in MPI_COMM_WORLD
  int32_t size;
  int32_t several_threads;  // whether threads may call at the same time
  int32_t largest_tag;
  char library[256];  // "Open MPI v4.1.4, package: ..."
};

// Messages of a group: collectives, and those between two members, never meet.
struct aa_mpi_group;
struct aa_mpi_message;
