// Decides what to do next about a message of memory of a GPU. Pure: equal views give equal actions.
//
// The payload passes through a window of pinned memory of the host, in pieces of half the window: while one piece is copied from
// or to the GPU, the host backend moves the other one. A thread looks at the first message of each queue, again and again:
//
//   it sees                                              it does
//   ---------------------------------------------------  ----------------------------------------------------------------
//   a copy has finished                                  count its bytes: the host backend may send them, or receive more
//   the work before the message in the caller's stream   copy the next piece
//   has finished; and the window has room for the next
//   piece of a Send, or has the next one of a Receive
//   the host backend and the copies have finished        finish with OK
//   the host backend has failed                          finish with its error
//   the deadline has passed                              end the fabric with an error that names who holds up the message:
//                                                        another rank, or the work in the caller's stream
//   a copy has failed, or the device is lost             end the fabric with that error; then finish with the fabric's error
//   the fabric has ended, and the message waits for      finish with the fabric's error
//   the work in the caller's stream
//
// A message does not finish while a copy is in flight or the host backend uses the window. Exceptions: nothing runs on a device
// that is lost; and 10 s after the fabric has ended, the error says that the copy is still in flight.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "ddprun/status.h"

namespace ddprun {

struct StagingView {
  bool sends = false;
  uint64_t num_bytes = 0;    // of the payload
  uint64_t piece_bytes = 0;  // half the window
  // The work in the caller's stream before the message has finished.
  bool stream_reached = false;
  uint64_t num_copied = 0;     // bytes whose copies have finished and were counted
  bool copying = false;        // the copy of the next piece is in the stream
  bool copy_finished = false;  // copying: it has finished
  uint64_t num_moved = 0;      // bytes that the host backend has sent or received
  bool host_finished = false;
  Status host_result = {};   // if the host backend has finished
  Status device_error = {};  // of a copy or of the device
  bool device_lost = false;
  bool fabric_ended = false;
  Status fabric_error = {};               // if the fabric has ended
  TimePoint ended_since = {};             // likewise: when this was first seen
  TimePoint deadline = TimePoint::max();  // the earliest one of this message and of those behind it
  bool gave_up = false;                   // kGiveUp or kGiveUpStream was done
};

struct StagingAction {
  enum class Kind {
    kNone,
    kCount,         // the copy in flight has finished
    kCopy,          // copy the next piece, from num_copied to EndOfPiece
    kFinish,        // with `status`
    kGiveUp,        // StagedMessage::GiveUp
    kGiveUpStream,  // Fabric::End, because the work in the caller's stream does not finish
    kEndFabric,     // Fabric::End with `status`
  };
  Kind kind = Kind::kNone;
  Status status = {};
};

// How long after the end of the fabric a copy may be in flight.
inline constexpr Duration kCopyLimit = seconds(10);

StagingAction DecideStaging(const StagingView& view, TimePoint now);

// The end of the next piece in the payload.
uint64_t EndOfPiece(const StagingView& view);
// StagedMessage::SetReady: the bytes up to this one may be sent, or received.
uint64_t NumReady(const StagingView& view);

}  // namespace ddprun
