// Decides what to do about the operations of a group that uses NCCL. Pure: equal views give equal actions.
//
// NCCL knows no deadlines and cannot name a dead peer, and CUDA has no wait with a deadline. So a thread looks at the group
// every millisecond while operations are in flight, and at once after each action:
//
//   it sees                                        it does
//   ---------------------------------------------  ----------------------------------------------------------------------
//   an operation's event has happened              finish the operation with OK
//   the communicator is ready                      record the event of the operation that was called last;
//                                                  otherwise call the next operation
//   an operation's deadline has passed             ask which ranks hold it up, then end the fabric with the answer; if the
//                                                  operation is in flight, 300 ms after the deadline: a rank whose call of
//                                                  NCCL does not return has the better answer
//   the communicator has failed                    give the fabric 300 ms to name a dead peer, then end it with NCCL's error
//   the device is lost                             end the fabric with that error
//   the fabric has ended                           abort the communicator, unless the device is lost
//   the communicator was aborted; or the fabric    finish all operations with the fabric's error: nothing uses their memory
//   has ended, and the device is lost
//
// A row applies only if none of the rows below it does. Exception: an operation whose event has happened is finished with OK
// until the communicator is aborted, if the communicator has not failed and the device is not lost. After a failure or an
// abort an event may happen because NCCL gave up, so that it does not prove a result.
//
// While a deadline has passed, no further operation is called. An operation that finishes while the question is asked
// succeeds, and the answer is dropped. Otherwise one question is asked at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"

namespace ddprun {

enum class CommState {
  kInitializing,  // ncclCommInitRankConfig has returned, and ncclCommGetAsyncError returns ncclInProgress
  kReady,         // ncclSuccess
  kInProgress,    // a call has returned ncclInProgress, and ncclCommGetAsyncError returns it
  kFailed,        // a call or ncclCommGetAsyncError has returned an error
  kAborting,      // ncclCommAbort was called
  kAborted,       // ncclCommAbort has returned, or there is no communicator: the communication stream is idle
  kStuck,         // ncclCommAbort has not returned within its limit: operations may still use their memory
};

struct OperationView {
  enum class State {
    kQueued,  // NCCL was not called
    kCalled,  // NCCL was called; the operation's event is not recorded, because NCCL may still put work into the stream
    kInFlight,  // the event is recorded
  };
  enum class Question { kNotAsked, kAsked, kAnswered };

  State state = State::kQueued;
  bool happened = false;  // kInFlight: the event has happened
  TimePoint deadline = TimePoint::max();
  // Who holds up this operation. The answer is the error that ends the fabric: it has the call, and the ranks.
  Question question = Question::kNotAsked;
  Status answer = {};
};

// What the thread has found. It must query the events before the communicator: an event that it finds happened, while the
// communicator has not failed afterwards, happened because the operation was complete.
struct GroupView {
  CommState comm = CommState::kInitializing;
  Status comm_error = {};       // kFailed: with NCCL's text
  TimePoint failed_since = {};  // kFailed: when this was first seen
  Status device_error = {};     // a sticky error of CUDA
  bool fabric_ended = false;
  Status fabric_error = {};                   // if the fabric has ended
  std::span<const OperationView> operations;  // in the order of the calls; without those that have finished
};

struct WatchActions {
  struct Finish {
    size_t operation = 0;
    Status status;
  };
  // Operations are named by their index in the view. At most one of the fields after `finish` is set.
  std::vector<Finish> finish;
  std::optional<size_t> record;      // record the operation's event in the communication stream
  std::optional<size_t> call;        // call NCCL for the operation
  std::optional<size_t> ask;         // find out who holds up the operation; may take 200 ms
  std::optional<Status> end_fabric;  // Fabric::End
  bool abort = false;                // ncclCommAbort; may block

  [[nodiscard]] bool none() const {
    return finish.empty() && !record && !call && !ask && !end_fabric && !abort;
  }
};

// How long after the deadline a rank whose call of NCCL does not return may take to say so. The other ranks wait for that rank, and
// cannot name it.
inline constexpr Duration kTimeToNameHungCall = milliseconds(300);
// How long after an error of NCCL the fabric may take to name the rank that has died, which is a better error.
inline constexpr Duration kTimeToNameDeadPeer = milliseconds(300);

WatchActions Watch(const GroupView& view, TimePoint now);

}  // namespace ddprun
