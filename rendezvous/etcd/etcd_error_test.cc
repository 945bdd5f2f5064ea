#include "rendezvous/etcd/etcd_error.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using Code = absl::StatusCode;
using Next = EtcdError::Next;

// Texts that the other tests, with a real etcd, do not cause.
TEST(EtcdErrorTest, Table) {
  struct Case {
    absl::Status answer;
    Next next;
    bool not_done;
    Code code;
    std::string text;
    EtcdErrorContext context = {};
  };
  const Case cases[] = {
      {absl::UnavailableError("etcdserver: no leader"), Next::kNextEndpoint, true, Code::kUnavailable,
       "has no leader"},
      {absl::UnavailableError("etcdserver: request timed out, possibly due to previous leader failure"),
       Next::kNextEndpoint, false, Code::kUnavailable, "etcdctl endpoint status"},
      {absl::UnavailableError("etcdserver: leader changed"), Next::kNextEndpoint, false, Code::kUnavailable,
       "leader changed"},
      {absl::UnavailableError("Socket closed"), Next::kNextEndpoint, false, Code::kUnavailable,
       "the connection was lost (Socket closed)"},
      {absl::ResourceExhaustedError("etcdserver: too many requests"), Next::kNextEndpoint, true,
       Code::kUnavailable, "overloaded"},
      {absl::DataLossError("etcdserver: corrupt cluster"), Next::kStop, true, Code::kFailedPrecondition,
       "etcdctl alarm list"},
      {absl::UnauthenticatedError("etcdserver: invalid auth token"),
       Next::kAuthenticate,
       true,
       Code::kUnauthenticated,
       "user 'me'",
       {.user = "me"}},
      {absl::InvalidArgumentError("etcdserver: revision of auth store is old"),
       Next::kAuthenticate,
       true,
       Code::kUnauthenticated,
       "user 'me'",
       {.user = "me"}},
      {absl::NotFoundError("etcdserver: requested lease not found"), Next::kGrantLease, true, Code::kNotFound,
       ""},
      {absl::UnimplementedError("unknown service etcdserverpb.KV"), Next::kWrongEndpoint, true,
       Code::kFailedPrecondition, "does not have etcd's v3 API"},
      {absl::UnimplementedError("Received http2 header with status: 404"), Next::kWrongEndpoint, true,
       Code::kFailedPrecondition, "not etcd"},
      {absl::UnavailableError(
           "failed to connect to all addresses; last error: INTERNAL: Trying to connect an http1.x server"),
       Next::kWrongEndpoint, true, Code::kFailedPrecondition, "an HTTP/1 server answers"},
      {absl::DeadlineExceededError("Deadline Exceeded"), Next::kNextEndpoint, false, Code::kDeadlineExceeded,
       "no answer in time"},
      {absl::UnknownError("etcdserver: something new"), Next::kNextEndpoint, false, Code::kUnavailable,
       "something new"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.answer.ToString());
    const EtcdError error = ExplainEtcdError(c.answer, c.context);
    EXPECT_EQ(error.next, c.next);
    EXPECT_EQ(error.not_done, c.not_done);
    EXPECT_EQ(error.status.code(), c.code);
    EXPECT_THAT(std::string(error.status.message()), testing::HasSubstr(c.text));
  }
}

}  // namespace
}  // namespace ddprun
