// A TCP client that sends and expects exact bytes. Blocking, but never longer than 20 s: then it gives what
// it has.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// "00 ce f7": bytes in hex, blanks ignored; ".." stands for the seven zero bytes that end a small u64.
std::string Hex(absl::string_view text);
// The way back, without the abbreviation, for readable failures.
std::string ToHex(absl::string_view bytes);

class RawPeer {
 public:
  // Connected, or aborts.
  explicit RawPeer(int port, const std::string& address = "127.0.0.1");
  // Not connected yet; Connect does it without needing another file descriptor.
  RawPeer();
  RawPeer(RawPeer&& other) noexcept;
  RawPeer& operator=(RawPeer&&) = delete;
  ~RawPeer();

  void Connect(int port, const std::string& address = "127.0.0.1");
  // False when the connection broke.
  bool Send(absl::string_view bytes);
  // `size` bytes, or fewer when the peer hangs up.
  std::string Receive(size_t size);
  // Until the other side hangs up.
  enum class End { kFin, kReset, kStillOpen };
  End ReceiveToEnd(std::string* bytes);
  void Shutdown();  // sends FIN
  void Close();

 private:
  int fd_ = -1;
};

}  // namespace ddprun
