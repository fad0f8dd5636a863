// Messages over the machine's own MPI. Implementations of MPI have different binary interfaces, so this is compiled on the
// machine, against the one that is installed there, and loaded at run time (src/comm/mpi/mpi_library.h).
// Calls do not block: a message is started, and aa_mpi_test() polls it. Only aa_mpi_start, aa_mpi_group_create and
// aa_mpi_finalize wait for other processes.
#include "mpi_messages.h"

#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "anyaccel/op_source.h"

struct aa_mpi_group {
  MPI_Comm lanes[2];  // for collectives, for messages with tags
};

struct aa_mpi_message {
  MPI_Request request;
};

namespace {

// Turns MPI's code into the result of a function and, if it is an error, writes the message.
int put_words(int code, aa_mpi_words* words) {
  if (code == MPI_SUCCESS) return 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  int i = 0;
  for (; i < length && i < static_cast<int>(sizeof(words->text)) - 1; ++i) words->text[i] = text[i];
  words->text[i] = 0;
  return 1;
}

#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40200000
// Sends a line to the process manager in the protocol of PMI 1; returns whether the reply begins with `answer`.
bool ask_manager(int socket, const char* line, const char* answer) {
  char text[64];
  const size_t length = strlen(line), expected = strlen(answer);
  for (size_t sent = 0; sent < length;) {
    const ssize_t count = write(socket, line + sent, length - sent);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) sent += static_cast<size_t>(count);
  }
  size_t have = 0;
  while (have < sizeof(text) && (!have || text[have - 1] != '\n')) {
    const ssize_t count = read(socket, text + have, sizeof(text) - have);
    if (count <= 0 && !(count < 0 && errno == EINTR)) return false;
    if (count > 0) have += static_cast<size_t>(count);
  }
  return have >= expected && !memcmp(text, answer, expected);
}

// Works around a deadlock of MPICH before 4.2.0 over UCX (pmodels/mpich#6596): a process that has closed its connections waits
// in MPI_Finalize for the others without progressing messages, and a peer whose connection to it is not complete yet then
// waits forever. So after a barrier, when nobody waits for a message any more, this tells the process manager what
// MPI_Finalize would, and leaves closing the connections to the operating system. Returns false, and MPI_Finalize is to be
// called, where this does not apply or fails.
bool leave_without_finalize() {
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(library, &length);
  const char* manager = getenv("PMI_FD");
  if (!manager || !strstr(library, "ucx")) return false;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return false;
  for (int done = 0; !done; sched_yield()) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
  }
  const int socket = atoi(manager);
  return ask_manager(socket, "cmd=barrier_in\n", "cmd=barrier_out") &&
         ask_manager(socket, "cmd=finalize\n", "cmd=finalize_ack");
}
#else
bool leave_without_finalize() { return false; }
#endif

}  // namespace

// Starts MPI unless the program has done so, and fills in `world`. `*started` tells whether aa_mpi_finalize must end it.
AA_OP int aa_mpi_start(aa_mpi_world* world, int* started, aa_mpi_words* words) {
  int before = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&before);
  *started = !before;
  if (before)
    MPI_Query_thread(&provided);
  else if (int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided))
    return put_words(code, words);
  world->several_threads = provided == MPI_THREAD_MULTIPLE;
  int rank = 0, size = 1, found = 0, length = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  world->rank = rank;
  world->size = size;
  void* tag = nullptr;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag, &found);
  world->largest_tag = found ? *static_cast<int*>(tag) : 32767;
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  MPI_Get_library_version(library, &length);
  size_t i = 0;
  for (; i + 1 < sizeof(world->library) && library[i] && library[i] != '\n'; ++i) world->library[i] = library[i];
  world->library[i] = 0;
  return 0;
}

// Creates a group of the `size` processes with these ranks in MPI_COMM_WORLD. All of them must call it.
AA_OP int aa_mpi_group_create(const int32_t* world_ranks, int32_t size, aa_mpi_group** out, aa_mpi_words* words) {
  int* ranks = new int[static_cast<size_t>(size)];
  for (int32_t i = 0; i < size; ++i) ranks[i] = world_ranks[i];
  MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  auto* group = new aa_mpi_group{{MPI_COMM_NULL, MPI_COMM_NULL}};
  int code = MPI_Comm_group(MPI_COMM_WORLD, &world);
  if (code == MPI_SUCCESS) code = MPI_Group_incl(world, size, ranks, &members);
  for (int lane = 0; lane < 2 && code == MPI_SUCCESS; ++lane) {
    code = MPI_Comm_create_group(MPI_COMM_WORLD, members, 7 + lane, &group->lanes[lane]);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(group->lanes[lane], MPI_ERRORS_RETURN);
  }
  if (members != MPI_GROUP_NULL) MPI_Group_free(&members);
  if (world != MPI_GROUP_NULL) MPI_Group_free(&world);
  delete[] ranks;
  if (code == MPI_SUCCESS)
    *out = group;
  else
    delete group;
  return put_words(code, words);
}

// Does not free the communicators, because MPI_Comm_free would wait for the others. They last until MPI ends.
AA_OP void aa_mpi_group_forget(aa_mpi_group* group) { delete group; }

AA_OP int aa_mpi_send(aa_mpi_group* group, int32_t lane, int32_t peer, int32_t tag, const void* data, int32_t bytes,
                      aa_mpi_message** out, aa_mpi_words* words) {
  auto* message = new aa_mpi_message{MPI_REQUEST_NULL};
  const int code = MPI_Isend(data, bytes, MPI_BYTE, peer, tag, group->lanes[lane], &message->request);
  if (code == MPI_SUCCESS)
    *out = message;
  else
    delete message;
  return put_words(code, words);
}

AA_OP int aa_mpi_receive(aa_mpi_group* group, int32_t lane, int32_t peer, int32_t tag, void* data, int32_t bytes,
                         aa_mpi_message** out, aa_mpi_words* words) {
  auto* message = new aa_mpi_message{MPI_REQUEST_NULL};
  const int code = MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, group->lanes[lane], &message->request);
  if (code == MPI_SUCCESS)
    *out = message;
  else
    delete message;
  return put_words(code, words);
}

// Polls a message, which also progresses the others; `*done` tells whether it is complete.
AA_OP int aa_mpi_test(aa_mpi_message* message, int* done, aa_mpi_words* words) {
  return put_words(MPI_Test(&message->request, done, MPI_STATUS_IGNORE), words);
}

// Cancels a receive that has not matched a message yet. Other messages cannot be cancelled.
AA_OP void aa_mpi_cancel(aa_mpi_message* message) {
  if (message->request != MPI_REQUEST_NULL) MPI_Cancel(&message->request);
}

AA_OP void aa_mpi_release(aa_mpi_message* message) {
  if (message->request != MPI_REQUEST_NULL) MPI_Request_free(&message->request);
  delete message;
}

AA_OP void aa_mpi_finalize() {
  int over = 0;
  MPI_Finalized(&over);
  if (!over && !leave_without_finalize()) MPI_Finalize();
}
