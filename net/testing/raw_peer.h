// A TCP client that sends and expects exact bytes. Calls block up to 20 s, then return what has arrived.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// "00 ce f7": bytes in hex, blanks ignored; ".." stands for the seven zero bytes that end a small u64.
std::string Hex(absl::string_view text);
// The inverse of Hex, but never abbreviates zeros; for readable test failures.
std::string ToHex(absl::string_view bytes);

class RawPeer {
 public:
  // Connects, or aborts.
  explicit RawPeer(int port, const std::string& address = "127.0.0.1");
  // Unconnected; Connect then needs no new file descriptor.
  RawPeer();
  RawPeer(RawPeer&& other) noexcept;
  RawPeer& operator=(RawPeer&&) = delete;
  ~RawPeer();

  void Connect(int port, const std::string& address = "127.0.0.1");
  // Returns false if the connection failed.
  bool Send(absl::string_view bytes);
  // Returns `size` bytes, or fewer if the peer closes the connection.
  std::string Receive(size_t size);
  // Receives until the peer closes the connection.
  enum class End { kFin, kReset, kStillOpen };
  End ReceiveToEnd(std::string* bytes);
  void Shutdown();  // sends FIN
  void Close();

 private:
  int fd_ = -1;
};

}  // namespace ddprun
