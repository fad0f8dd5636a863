// libanyaccel_gloo.so: Gloo's TCP transport behind the table of comm/gloo/gloo_table.h.
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <pthread.h>
#include <signal.h>

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/gloo/gloo_table.h"

namespace transport = gloo::transport;

struct aa_gloo {
  int rank;
  int size;
  std::shared_ptr<transport::Device> device;
  std::shared_ptr<transport::Context> context;
  std::vector<char> address;
};

struct aa_gloo_message {
  std::unique_ptr<transport::UnboundBuffer> buffer;
  bool sends;
};

namespace {

// Gloo writes to sockets in a way that raises SIGPIPE when the peer is gone. For its lifetime the calling thread, and
// threads it starts, do not get the signal.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec now{};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

// Gloo's texts begin with the place in its source: "[./gloo/transport/tcp/pair.cc:589] Connection closed by peer ...".
void put_words(aa_gloo_words* error, const char* text) {
  if (text[0] == '[') {
    if (const char* end = std::strstr(text, "] ")) text = end + 2;
  }
  std::strncpy(error->text, text, sizeof(error->text) - 1);
  error->text[sizeof(error->text) - 1] = 0;
}

template <class Body>
int guarded(aa_gloo_words* error, const Body& body) {
  const NoBrokenPipe guard;
  try {
    return body();
  } catch (const std::exception& thrown) {
    put_words(error, thrown.what());
  } catch (...) {
    put_words(error, "an unknown exception");
  }
  return AA_GLOO_FAILED;
}

int create(const char* address, int rank, int size, int64_t connect_ms, aa_gloo** out, aa_gloo_words* error) {
  return guarded(error, [&] {
    auto gloo = std::make_unique<aa_gloo>();
    gloo->rank = rank;
    gloo->size = size;
    transport::tcp::attr attributes;
    attributes.hostname = address;
    gloo->device = transport::tcp::CreateDevice(attributes);
    gloo->context = gloo->device->createContext(rank, size);
    gloo->context->setTimeout(std::chrono::milliseconds(connect_ms));
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) gloo->context->createPair(peer);
    }
    *out = gloo.release();
    return int{AA_GLOO_DONE};
  });
}

int address(aa_gloo* gloo, int peer, const char** data, size_t* bytes, aa_gloo_words* error) {
  return guarded(error, [&] {
    gloo->address = gloo->context->getPair(peer)->address().bytes();
    *data = gloo->address.data();
    *bytes = gloo->address.size();
    return int{AA_GLOO_DONE};
  });
}

int connect_peer(aa_gloo* gloo, int peer, const char* data, size_t bytes, aa_gloo_words* error) {
  return guarded(error, [&] {
    gloo->context->getPair(peer)->connect(std::vector<char>(data, data + bytes));
    return int{AA_GLOO_DONE};
  });
}

int send_message(aa_gloo* gloo, int peer, uint64_t slot, const void* data, size_t bytes, aa_gloo_message** out,
                 aa_gloo_words* error) {
  return guarded(error, [&] {
    auto message = std::make_unique<aa_gloo_message>();
    message->buffer = gloo->context->createUnboundBuffer(const_cast<void*>(data), bytes);
    message->sends = true;
    message->buffer->send(peer, slot);
    *out = message.release();
    return int{AA_GLOO_DONE};
  });
}

int receive_message(aa_gloo* gloo, int peer, uint64_t slot, void* data, size_t bytes, aa_gloo_message** out,
                    aa_gloo_words* error) {
  return guarded(error, [&] {
    auto message = std::make_unique<aa_gloo_message>();
    message->buffer = gloo->context->createUnboundBuffer(data, bytes);
    message->sends = false;
    message->buffer->recv(peer, slot);
    *out = message.release();
    return int{AA_GLOO_DONE};
  });
}

int wait_message(aa_gloo_message* message, int64_t ms, aa_gloo_words* error) {
  return guarded(error, [&] {
    const std::chrono::milliseconds time(ms);
    const bool complete = message->sends ? message->buffer->waitSend(time) : message->buffer->waitRecv(time);
    return complete ? int{AA_GLOO_DONE} : int{AA_GLOO_INTERRUPTED};
  });
}

void interrupt(aa_gloo_message* message) {
  if (message->sends)
    message->buffer->abortWaitSend();
  else
    message->buffer->abortWaitRecv();
}

void release(aa_gloo_message* message) { delete message; }

void close_all(aa_gloo* gloo) {
  aa_gloo_words ignored;
  for (int peer = 0; peer < gloo->size; ++peer) {
    if (peer == gloo->rank) continue;
    guarded(&ignored, [&] {
      if (auto& pair = gloo->context->getPair(peer)) pair->close();
      return int{AA_GLOO_DONE};
    });
  }
}

void destroy(aa_gloo* gloo) {
  aa_gloo_words ignored;
  guarded(&ignored, [&] {
    delete gloo;
    return int{AA_GLOO_DONE};
  });
}

const aa_gloo_table kTable = {create,       address,   connect_peer, send_message, receive_message,
                              wait_message, interrupt, release,      close_all,    destroy};

}  // namespace

extern "C" __attribute__((visibility("default"))) const aa_gloo_table* aa_gloo_open(uint32_t version) {
  return version == AA_GLOO_VERSION ? &kTable : nullptr;
}
