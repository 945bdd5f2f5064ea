// What the warden writes to the coordinator when its agent has died. See warden_protocol.h.
#pragma once

#include <cstdint>
#include <string>

#include "os/descriptor.h"

namespace ddprun {

//   Threads: one caller at a time.
class LastWords {
 public:
  // Replaces the words, and closes their socket.
  //   line:  a connected stream socket.
  //   file:  holds the words in its first `bytes` bytes. If they cannot be read, there are no words afterwards.
  void Set(UniqueFd line, const UniqueFd& file, uint64_t bytes);
  void Drop() { line_.Reset(); }
  // Writes the words, shuts the socket down, and waits until the peer closes it. Takes at most 1 s. Does nothing if there
  // are no words.
  void Write() const;

 private:
  UniqueFd line_;  // invalid if there are no words
  std::string words_;
};

}  // namespace ddprun
