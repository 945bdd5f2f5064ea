// The measurements of `collective_load all-reduce` and `collective_load ping-pong` with MPI. bench.py compiles it with
// mpicc.
//   collective_mpi all-reduce|ping-pong BYTES ITERATIONS
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int Compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) return 2;
  const int ping_pong = strcmp(argv[1], "ping-pong") == 0;
  const int count = (int)(atol(argv[2]) / 4), iterations = atoi(argv[3]), warm_up = 5;
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int peer = 1 - rank;
  float* values = malloc(sizeof(float) * count);
  double* micros = malloc(sizeof(double) * iterations);
  for (int i = -warm_up; i < iterations; ++i) {
    for (int k = 0; k < count && i < 0; ++k) values[k] = 0;
    const double begin = MPI_Wtime();
    if (ping_pong) {
      if (rank == 0) MPI_Send(values, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
      MPI_Recv(values, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (rank == 1) MPI_Send(values, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
    } else {
      MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (i >= 0) micros[i] = (MPI_Wtime() - begin) * 1e6 / (ping_pong ? 2 : 1);
  }
  qsort(micros, iterations, sizeof(double), Compare);
  double slowest = 0;
  MPI_Reduce(&micros[iterations / 2], &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%.3f\n", slowest);
  MPI_Finalize();
  return 0;
}
