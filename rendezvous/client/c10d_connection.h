// A connection to a c10d TCP store, dialect V: sends requests and reads the replies in order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "proto/c10d_wire.h"

namespace ddprun {

//   Errors:  kInvalidArgument: the request is invalid; nothing was sent;
//            kUnavailable: the connection is broken, and all later calls fail. A late or invalid reply also
//            breaks the connection, since later replies could not be matched to their requests.
//   Threads: one caller at a time.
class C10dConnection {
 public:
  // Like C10dClient::Connect. `timeout` also applies to each later request, except to waits.
  static absl::StatusOr<std::unique_ptr<C10dConnection>> Open(const std::string& host, int port,
                                                              Duration timeout);
  ~C10dConnection();
  C10dConnection(const C10dConnection&) = delete;
  C10dConnection& operator=(const C10dConnection&) = delete;

  // Sends a request that has no reply.
  absl::Status Tell(const c10d::Request& request);

  // Sends a request and reads its reply with `receive(deadline)`, which returns a StatusOr.
  template <typename Receive>
  auto Ask(const c10d::Request& request, Receive receive) -> decltype(receive(TimePoint())) {
    const TimePoint deadline = Deadline();
    if (absl::Status sent = Send(request, deadline); !sent.ok()) return sent;
    auto reply = receive(deadline);
    if (!reply.ok()) return Break(reply.status(), c10d::Info(c10d::OpOf(request)).name);
    return reply;
  }

  // Sends a WAIT or BARRIER and waits for its reply.
  //   Errors: kDeadlineExceeded naming `awaited`: the wait was cancelled; the connection stays usable.
  absl::Status Await(const c10d::Request& request, const std::string& awaited, Duration timeout);

  // Parts of replies. Errors: kUnavailable, kDeadlineExceeded; Ask converts them.
  absl::StatusOr<uint8_t> ReceiveU8(TimePoint deadline);
  absl::StatusOr<int64_t> ReceiveI64(TimePoint deadline);
  absl::StatusOr<std::string> ReceiveBytes(TimePoint deadline);
  absl::StatusOr<std::vector<std::string>> ReceiveList(uint64_t num_items, TimePoint deadline);

  // Numeric, without a port; empty if it cannot be determined.
  std::string local_address() const;

 private:
  C10dConnection(std::string endpoint, Duration timeout)
      : endpoint_(std::move(endpoint)), timeout_(timeout) {}

  TimePoint Deadline() const;
  absl::Status Send(const c10d::Request& request, TimePoint deadline);
  absl::Status SendOut(TimePoint deadline);
  absl::Status Receive(char* data, size_t size, TimePoint deadline);
  absl::Status Greet(TimePoint deadline);
  absl::Status Break(const absl::Status& why, absl::string_view doing);

  const std::string endpoint_;  // for messages
  const Duration timeout_;
  int fd_ = -1;
  absl::Status broken_;  // why the connection is unusable; OK: it is usable
  std::string out_;      // the encoded request
};

}  // namespace ddprun
