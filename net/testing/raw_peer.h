// A TCP client that sends and receives raw bytes. Each call times out after 20 s without progress.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Decodes hex such as "00 ce f7". Blanks are ignored. ".." stands for seven zero bytes, the upper bytes of a
// u64 below 256.
std::string Hex(absl::string_view text);
// Encodes `bytes` as hex without blanks or "..", for readable test failures.
std::string ToHex(absl::string_view bytes);

class RawPeer {
 public:
  // Connects. If that fails, aborts the process.
  explicit RawPeer(int port, const std::string& address = "127.0.0.1");
  // Creates a socket that is not connected. A later Connect then needs no further descriptor.
  RawPeer();
  RawPeer(RawPeer&& other) noexcept;
  RawPeer& operator=(RawPeer&&) = delete;
  ~RawPeer();

  void Connect(int port, const std::string& address = "127.0.0.1");
  // Sends all `bytes`. Returns false if the connection failed.
  bool Send(absl::string_view bytes);
  // Returns `size` bytes, or fewer if the peer closes the connection or the call times out.
  std::string Receive(size_t size);
  enum class End { kFin, kReset, kStillOpen };
  // Appends to `bytes` until the peer closes the connection. Returns kStillOpen if the call times out.
  End ReceiveToEnd(std::string* bytes);
  void Shutdown();  // sends FIN
  void Close();

 private:
  int fd_ = -1;
};

}  // namespace ddprun
