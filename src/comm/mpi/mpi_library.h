// The machine's MPI: found, compiled against, started once a process.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "kernels/host/mpi_messages.h"

namespace anyaccel::comm {

// The launcher that started this process, as far as the environment tells.
struct MpiLauncher {
  std::string mpi;       // "Open MPI", "MPICH", "Intel MPI", "MVAPICH", "Slurm's PMI"; empty: none is seen
  std::string evidence;  // "OMPI_COMM_WORLD_SIZE=4"
  int size = 0;          // processes that it says it started; 0: it does not say
};
MpiLauncher mpi_launcher();

// The C compiler command of the MPI to use: MPICC, else that of the launcher's MPI, else mpicc. UnavailableError says what
// was looked for and which package to install.
std::string mpi_compiler(const MpiLauncher& launcher);

// What the process does with MPI: the functions of kernels/host/mpi_messages.cpp, compiled against that MPI.
struct MpiLibrary {
  // Builds (once a machine), loads, starts MPI; the same object each time. UnavailableError, BuildError,
  // CommunicationError. MPI is ended when the process exits with status 0: a launcher takes any other end for a failure of
  // the job, and so it should.
  static const MpiLibrary& get();

  // Held around calls where MPI does not allow several threads at the same time; else it holds nothing.
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
