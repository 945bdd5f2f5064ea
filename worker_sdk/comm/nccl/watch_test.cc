#include "worker_sdk/comm/nccl/watch.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Question = OperationView::Question;
using State = OperationView::State;

const TimePoint kNow = TimePoint() + seconds(1000);

// "q", "c" or "f": queued, called or in flight; then any of: '+' its event has happened; '!' its deadline is now; '?' the
// question is asked; '.' it is answered; ':' its deadline was long ago.
OperationView Parse(const std::string& text) {
  OperationView operation;
  operation.deadline = kNow + Duration(1);
  for (const char c : text) {
    if (c == 'c') operation.state = State::kCalled;
    if (c == 'f') operation.state = State::kInFlight;
    if (c == '+') operation.happened = true;
    if (c == '!') operation.deadline = kNow;
    if (c == ':') operation.deadline = kNow - kTimeToNameHungCall;
    if (c == '?') operation.question = Question::kAsked;
    if (c == '.') {
      operation.question = Question::kAnswered;
      operation.answer = DeadlineExceededError("answer");
    }
  }
  return operation;
}

std::string ToText(const WatchActions& actions) {
  std::vector<std::string> parts;
  for (const auto& [operation, status] : actions.finish)
    parts.push_back(StrCat("finish ", operation, " ", status.ok() ? "OK" : status.message()));
  if (actions.record) parts.push_back(StrCat("record ", *actions.record));
  if (actions.call) parts.push_back(StrCat("call ", *actions.call));
  if (actions.ask) parts.push_back(StrCat("ask ", *actions.ask));
  if (actions.end_fabric) parts.push_back(StrCat("end ", actions.end_fabric->message()));
  if (actions.abort) parts.push_back("abort");
  EXPECT_EQ(parts.empty(), actions.none());
  return parts.empty() ? "nothing" : StrJoin(parts, ", ");
}

struct Case {
  const char* name;
  CommState comm;
  const char* operations;
  const char* expected;
  bool fabric_ended = false;
  bool device_lost = false;
  int failed_for_ms = 0;  // kFailed
};

void Check(const Case& c) {
  std::vector<OperationView> operations;
  if (*c.operations != '\0') {
    for (const std::string& text : StrSplit(c.operations, ' ')) operations.push_back(Parse(text));
  }
  GroupView view{.comm = c.comm, .operations = operations};
  if (c.comm == CommState::kFailed) {
    view.comm_error = UnavailableError("nccl");
    view.failed_since = kNow - milliseconds(c.failed_for_ms);
  }
  if (c.device_lost) view.device_error = DataLossError("device");
  view.fabric_ended = c.fabric_ended;
  if (c.fabric_ended) view.fabric_error = UnavailableError("peer");
  EXPECT_EQ(ToText(Watch(view, kNow)), c.expected) << c.name;
}

using enum CommState;

TEST(WatchTest, WithoutFailures) {
  const Case kCases[] = {
      {"nothing to do", kReady, "", "nothing"},
      {"in flight", kReady, "f", "nothing"},
      {"finished", kReady, "f+", "finish 0 OK"},
      {"finished although a call is in progress", kInProgress, "f+ c", "finish 0 OK"},
      {"finished in any order", kReady, "f f+ f+", "finish 1 OK, finish 2 OK"},
      {"the first call", kReady, "q q", "call 0"},
      {"the next call while others are in flight", kReady, "f f q q", "call 2"},
      {"finish and call", kReady, "f+ q", "finish 0 OK, call 1"},
      {"no call while the communicator is initialized", kInitializing, "q q", "nothing"},
      {"no call while another is in progress", kInProgress, "c q", "nothing"},
      {"no event while its call is in progress", kInProgress, "f c", "nothing"},
      {"the event once its call is complete", kReady, "c", "record 0"},
      {"the event before the next call", kReady, "f c q", "record 1"},
      {"finish and record", kReady, "f+ c q", "finish 0 OK, record 1"},
      {"an event that was not recorded has not happened", kInProgress, "c+", "nothing"},
  };
  for (const Case& c : kCases) Check(c);
}

TEST(WatchTest, Deadlines) {
  const Case kCases[] = {
      {"in flight", kReady, "f!", "ask 0"},
      {"the oldest", kReady, "f f! f!", "ask 1"},
      {"queued", kReady, "q!", "ask 0"},
      {"queued while initializing", kInitializing, "q!", "ask 0"},
      {"called", kInProgress, "c!", "ask 0"},
      {"no event, no call after a deadline", kReady, "c! q", "ask 0"},
      {"no call while the question is asked", kReady, "f!? q", "nothing"},
      {"one question at a time", kReady, "f! f!?", "nothing"},
      {"answered", kReady, "q!.", "end answer"},
      {"answered while the call does not return", kInProgress, "c!.", "end answer"},
      {"answered in flight: another rank may have the better answer", kReady, "f!.", "nothing"},
      {"answered in flight, later", kReady, "f:.", "end answer"},
      {"no call and no other question meanwhile", kReady, "f!. f! q", "nothing"},
      {"answered for a later one", kReady, "f! q!.", "end answer"},
      {"answered before another question was", kReady, "f!? f:.", "end answer"},
      {"the event and the deadline", kReady, "f+!", "finish 0 OK"},
      {"the event and the deadline, and the next call", kReady, "f+! q", "finish 0 OK, call 1"},
      {"the event while the question is asked", kReady, "f+!?", "finish 0 OK"},
      {"the event and the answer", kReady, "f+!. q", "finish 0 OK, call 1"},
      {"the event of one, the deadline of another", kReady, "f+! f!", "finish 0 OK, ask 1"},
      {"the deadline and an error of NCCL", kFailed, "f!", "nothing"},
      {"the deadline and a lost device", kReady, "f!", "end device", false, true},
      {"the deadline and the end of the fabric", kReady, "f!", "abort", true},
  };
  for (const Case& c : kCases) Check(c);
}

TEST(WatchTest, ErrorsOfNccl) {
  const Case kCases[] = {
      {"time for the fabric", kFailed, "f", "nothing"},
      {"almost", kFailed, "f", "nothing", false, false, 299},
      {"no more time", kFailed, "f", "end nccl", false, false, 300},
      {"without operations", kFailed, "", "end nccl", false, false, 300},
      {"no call", kFailed, "q", "nothing"},
      {"no event of the failed call", kFailed, "c q", "nothing"},
      {"an event after an error is not trusted", kFailed, "f+", "nothing"},
      {"an event after an error, later", kFailed, "f+", "end nccl", false, false, 300},
      {"the fabric names the peer in time", kFailed, "f", "abort", true},
      {"the fabric ended, and an event after an error", kFailed, "f+ q", "abort", true},
      {"the device is lost as well", kFailed, "f", "end device", false, true},
  };
  for (const Case& c : kCases) Check(c);
}

TEST(WatchTest, EndOfTheFabric) {
  const Case kCases[] = {
      {"ready", kReady, "f c q", "abort", true},
      {"without operations", kReady, "", "abort", true},
      {"a call in progress", kInProgress, "f c q", "abort", true},
      {"initializing", kInitializing, "q", "abort", true},
      {"finished before the end", kReady, "f+ f", "finish 0 OK, abort", true},
      {"aborting", kAborting, "f c q", "nothing", true},
      {"an event while aborting is not trusted", kAborting, "f+", "nothing", true},
      {"aborted", kAborted, "f c q", "finish 0 peer, finish 1 peer, finish 2 peer", true},
      {"an event of the abort is not trusted", kAborted, "f+ f+!", "finish 0 peer, finish 1 peer", true},
      {"the abort does not return", kStuck, "f+",
       "finish 0 peer; ncclCommAbort has not returned since, so NCCL may still access the memory of the "
       "operation: exit the process",
       true},
      {"the device is lost while the abort does not return", kStuck, "f", "finish 0 peer", true, true},
      {"nothing is left", kAborted, "", "nothing", true},
  };
  for (const Case& c : kCases) Check(c);
}

TEST(WatchTest, LostDevice) {
  const Case kCases[] = {
      {"at once", kReady, "f", "end device", false, true},
      {"its events are not trusted", kReady, "f+ q", "end device", false, true},
      {"while initializing", kInitializing, "", "end device", false, true},
      {"no abort; nothing runs on the device", kReady, "f c q", "finish 0 peer, finish 1 peer, finish 2 peer",
       true, true},
      {"a call in progress", kInProgress, "c", "finish 0 peer", true, true},
      {"failed", kFailed, "f", "finish 0 peer", true, true, 300},
      {"aborting", kAborting, "f", "finish 0 peer", true, true},
  };
  for (const Case& c : kCases) Check(c);
}

}  // namespace
}  // namespace ddprun
