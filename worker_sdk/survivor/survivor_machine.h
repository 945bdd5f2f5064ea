// How a worker whose process survives its round gets into the next one. Pure. See docs/decisions/0015-in-place-recovery.md.
//
//   in the round --CallerLeaves--> leaving --CallerWaits, parked is sent--> parked --RoundOffer--> offered
//        ^                                                                    ^                      |  |
//        |                                                                    +----- its round is over  |
//        +------------------------------- CallerWaits, the worker connects -----------------------------+
//
// From leaving, parked and offered, the worker is out at the caller's next CallerWaits if no round follows or the connection is
// lost: NextRound fails.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/worker_message.h"
#include "ddprun/status.h"

namespace ddprun {

//   Threads: one caller at a time.
class SurvivorMachine {
 public:
  // Events, besides AgentRequest and RoundOffer.
  // The connection to the agent has ended, and with it the agent's consent. In the round, a new connection may follow.
  struct ConnectionLost {};
  // The program has called NextRound. REQUIRES: WhyNot(why).ok().
  struct CallerLeaves {
    Status why;
  };
  // The thread in NextRound has carried out all effects, and nothing uses the connections and the memory of the round. Repeated
  // after each event until the answer is Connect or Fail. REQUIRES: the last CallerLeaves has had no such answer yet.
  struct CallerWaits {};
  using Event = std::variant<AgentRequest, RoundOffer, ConnectionLost, CallerLeaves, CallerWaits>;

  // Effects.
  // End communication in all groups of the round, also in those that are created later, and cancel the round's store.
  struct EndRound {
    Status why;
    bool operator==(const EndRound&) const = default;
  };
  // Only after CallerWaits, one at most:
  struct SendParked {
    Round round;
    Rank rank;
    std::string message;
    bool operator==(const SendParked&) const = default;
  };
  // The worker is in the round of the offer.
  struct Connect {
    RoundOffer offer;
    bool operator==(const Connect&) const = default;
  };
  struct Fail {
    Status why;
    bool operator==(const Fail&) const = default;
  };
  using Effect = std::variant<EndRound, SendParked, Connect, Fail>;

  enum class State { kInRound, kLeaving, kParked, kOffered, kOut };

  SurvivorMachine(Round round, Rank rank) : round_(round), rank_(rank) {}

  [[nodiscard]] std::vector<Effect> Step(const Event& event);
  // OK if NextRound(why) can help; otherwise kFailedPrecondition with the reason.
  [[nodiscard]] Status WhyNot(const Status& why) const;

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] Round round() const { return round_; }
  [[nodiscard]] Rank rank() const { return rank_; }

 private:
  std::vector<Effect> OnRequest(const AgentRequest& request);
  std::vector<Effect> OnCallerWaits();
  // kFailedPrecondition if there is no next round for this process; otherwise OK.
  [[nodiscard]] Status Outlook() const;

  State state_ = State::kInRound;
  Round round_;                      // the last one that began for this worker, or that it was offered
  Rank rank_;                        // in that round
  bool agreed_ = false;              // the agent lets the process live; until the connection is lost
  bool lost_ = false;                // the connection was lost
  bool over_ = false;                // round_ is over
  bool no_round_follows_ = false;    // final
  Status why_;                       // with which the round ended, from kLeaving on
  std::optional<RoundOffer> offer_;  // kOffered
};

}  // namespace ddprun
