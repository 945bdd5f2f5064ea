// The shell of SurvivorMachine: a thread that receives from the agent, and the thread in NextRound, which sends and waits.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/worker_env.h"
#include "base/worker_message.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/agent_channel.h"
#include "worker_sdk/survivor/survivor_machine.h"

namespace ddprun {

struct SurvivorHooks {
  // Ends communication in the round that began last. Must not block, nor call the Survivor. Any thread.
  std::function<void(const Status& why)> end_round;
  // Each request of the agent. On the Survivor's thread.
  std::function<void(const AgentRequest& request)> on_request;
  // The process has left a round in which it was a member. In NextRound.
  std::function<void(Round round)> left;
  // A round begins: from now on, end_round means this one. In NextRound, while no other hook runs.
  std::function<void(const RoundOffer& offer)> begin;
};

//   Threads: one caller at a time, which also sends on the channel.
//   Owns:    none of the arguments.
class Survivor {
 public:
  // Asks the agent to let this process live when the round of `env` ends, and starts a thread, which receives from the channel from
  // now on. Blocks while the agent's socket is full, at most 10 s.
  Survivor(AgentChannel* channel, const WorkerEnv& env, SurvivorHooks hooks);
  ~Survivor();
  Survivor(const Survivor&) = delete;
  Survivor& operator=(const Survivor&) = delete;

  // OK if NextRound(why) can help; otherwise kFailedPrecondition with the reason.
  [[nodiscard]] Status WhyNot(const Status& why) const;
  // Ends the round. The caller then has to give up everything that belongs to it, and to call AwaitOffer.
  //   Errors: those of WhyNot; nothing has changed.
  Status Leave(const Status& why);
  // Tells the agent that this process is parked, and blocks until a round has begun. REQUIRES: Leave was called before.
  //   Errors: kFailedPrecondition: no round follows, or the connection to the agent is lost; there is no round for this process.
  Status AwaitRound();

 private:
  void Run();
  // Carries out the effects for which any thread will do.
  void Step(const SurvivorMachine::Event& event);
  // Requires mu_.
  [[nodiscard]] WorkerSurvival Message(SurvivalState state) const;

  AgentChannel* const channel_;
  const LocalRank local_rank_;
  const SurvivorHooks hooks_;
  const UniqueFd stop_fd_;  // an eventfd
  mutable std::mutex mu_;
  std::condition_variable changed_;
  SurvivorMachine machine_;  // guarded by mu_
  std::thread thread_;
};

}  // namespace ddprun
