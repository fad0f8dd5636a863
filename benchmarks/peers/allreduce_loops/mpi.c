/* The all-reduce loop of MPI for benchmarks/peers/allreduce.py: prints "BYTES MICROSECONDS" a line, 0 bytes for the barrier.
 *
 * mpicc -O2 mpi.c -o mpi; mpirun --bind-to core -np 2 ./mpi BYTES... */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double least(double a, double b) { return a < b ? a : b; }

int main(int argc, char** argv) {
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int k = 1; k < argc; ++k) {
    const size_t bytes = (size_t)atoll(argv[k]);
    const size_t count = bytes / sizeof(float);
    float* data = malloc(bytes + 1);
    for (size_t i = 0; i < count; ++i) data[i] = 0.5f + 0.001f * (float)(i % 97);
    /* As `anyaccel bench allreduce` does. */
    size_t batch = ((size_t)4 << 20) / (bytes + 1);
    batch = batch < 1 ? 1 : batch > 100 ? 100 : batch;
    const int repeats = bytes < (1 << 20) ? 60 : 20;
    double best = 1e9;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (size_t i = 0; i < count; ++i) data[i] = 0.5f + 0.001f * (float)(i % 97);
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      for (size_t i = 0; i < batch; ++i) {
        if (bytes == 0) {
          MPI_Barrier(MPI_COMM_WORLD);
        } else {
          MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
      }
      best = least(best, (MPI_Wtime() - start) / (double)batch);
    }
    if (rank == 0) printf("%zu %.9g\n", bytes, 1e6 * best);
    free(data);
  }
  MPI_Finalize();
  return 0;
}
