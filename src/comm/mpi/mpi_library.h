// Finds the machine's MPI, compiles against it, and starts it once per process.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "kernels/host/mpi_messages.h"

namespace anyaccel::comm {

// The launcher that started this process, according to the environment.
struct MpiLauncher {
  std::string mpi;       // "Open MPI", "MPICH", "Intel MPI", "MVAPICH", "Slurm's PMI"; empty: none detected
  std::string evidence;  // "OMPI_COMM_WORLD_SIZE=4"
  int size = 0;          // number of processes that it started; 0: unknown
};
MpiLauncher mpi_launcher();

// The C compiler command of the MPI to use: MPICC, else that of the launcher's MPI, else mpicc. UnavailableError lists
// the commands that were tried and the package to install.
std::string mpi_compiler(const MpiLauncher& launcher);

// The functions of kernels/host/mpi_messages.cpp, compiled against that MPI.
struct MpiLibrary {
  // Builds (once per machine) and loads the library, and starts MPI; returns the same object each time.
  // UnavailableError, BuildError, CommunicationError. MPI is finalized when the process exits with status 0: a launcher
  // treats any other end as a failure of the job, as intended.
  static const MpiLibrary& get();

  // Locked around calls if MPI does not support concurrent calls; else does nothing.
  std::unique_lock<std::mutex> guard() const;

  MpiLauncher launcher;  // as the environment was before MPI started
  aa_mpi_world world{};
  std::string description;  // "Open MPI v4.1.4, built with mpicc.openmpi"

  int (*group_create)(const int32_t* world_ranks, int32_t size, aa_mpi_group** out, aa_mpi_words* words);
  void (*group_forget)(aa_mpi_group* group);
  int (*send)(aa_mpi_group* group, int32_t lane, int32_t peer, int32_t tag, const void* data, int32_t bytes,
              aa_mpi_message** out, aa_mpi_words* words);
  int (*receive)(aa_mpi_group* group, int32_t lane, int32_t peer, int32_t tag, void* data, int32_t bytes,
                 aa_mpi_message** out, aa_mpi_words* words);
  int (*test)(aa_mpi_message* message, int* done, aa_mpi_words* words);
  void (*cancel)(aa_mpi_message* message);
  void (*release)(aa_mpi_message* message);
};

}  // namespace anyaccel::comm
