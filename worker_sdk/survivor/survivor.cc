#include "worker_sdk/survivor/survivor.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/overloaded.h"
#include "base/time.h"

namespace ddprun {
namespace {

// How long an agent may leave its socket unread.
constexpr Duration kAskTimeout = seconds(10), kParkTimeout = seconds(60);

}  // namespace

Survivor::Survivor(AgentChannel* channel, const WorkerEnv& env, SurvivorHooks hooks)
    : channel_(channel),
      local_rank_(env.local_rank),
      hooks_(std::move(hooks)),
      stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      machine_(env.round, env.rank) {
  DDPRUN_CHECK(stop_fd_, "no descriptors are left");
  // If this fails, the next report connects and asks.
  (void)channel_->Introduce(Encode(Message(SurvivalState::kAsks)), "asking to survive the round",
                            kAskTimeout);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's threads
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Survivor::~Survivor() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(stop_fd_.get(), &one, sizeof(one));
  thread_.join();
}

void Survivor::Run() {
  AgentChannel::Connection current;
  while (true) {
    channel_->ClearChanged();
    if (AgentChannel::Connection next = channel_->connection(); next != current) {
      if (current != nullptr) Step(SurvivorMachine::ConnectionLost{});
      current = std::move(next);
    }
    bool ended = false;
    while (const std::optional<AgentChannel::Message> message = channel_->Receive(current, &ended)) {
      if (const auto* request = std::get_if<AgentRequest>(&*message)) {
        hooks_.on_request(*request);
        Step(*request);
      } else {
        Step(std::get<RoundOffer>(*message));
      }
    }
    if (ended) {
      channel_->Close(current);
      Step(SurvivorMachine::ConnectionLost{});
      current = nullptr;
    }
    pollfd fds[] = {{stop_fd_.get(), POLLIN, 0},
                    {channel_->changed_fd(), POLLIN, 0},
                    {current != nullptr ? current->get() : -1, POLLIN, 0}};
    poll(fds, std::size(fds), -1);
    if (fds[0].revents != 0) return;
  }
}

void Survivor::Step(const SurvivorMachine::Event& event) {
  const std::lock_guard<std::mutex> lock(mu_);
  for (const SurvivorMachine::Effect& effect : machine_.Step(event)) {
    hooks_.end_round(std::get<SurvivorMachine::EndRound>(effect).why);
  }
  changed_.notify_all();
}

Status Survivor::WhyNot(const Status& why) const {
  const std::lock_guard<std::mutex> lock(mu_);
  return machine_.WhyNot(why);
}

Status Survivor::Leave(const Status& why) {
  const std::lock_guard<std::mutex> lock(mu_);
  DDPRUN_RETURN_IF_ERROR(machine_.WhyNot(why));
  for (const SurvivorMachine::Effect& effect : machine_.Step(SurvivorMachine::CallerLeaves{why})) {
    hooks_.end_round(std::get<SurvivorMachine::EndRound>(effect).why);
  }
  return OkStatus();
}

Status Survivor::AwaitRound() {
  std::unique_lock<std::mutex> lock(mu_);
  while (true) {
    const std::vector<SurvivorMachine::Effect> effects = machine_.Step(SurvivorMachine::CallerWaits{});
    if (effects.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (const auto* fail = std::get_if<SurvivorMachine::Fail>(&effects[0])) return fail->why;
    if (const auto* connect = std::get_if<SurvivorMachine::Connect>(&effects[0])) {
      channel_->SetIntroduction(Encode(Message(SurvivalState::kAsks)));
      hooks_.begin(connect->offer);
      return OkStatus();
    }
    const auto& parked = std::get<SurvivorMachine::SendParked>(effects[0]);
    WorkerSurvival message = Message(SurvivalState::kParked);
    message.message = parked.message;
    lock.unlock();
    hooks_.left(parked.round);
    const Status sent = channel_->Send(Encode(message), "reporting that this worker is parked", kParkTimeout);
    lock.lock();
    if (sent.ok()) continue;
    (void)machine_.Step(SurvivorMachine::ConnectionLost{});
    (void)machine_.Step(SurvivorMachine::CallerWaits{});
    return FailedPreconditionError(sent.message());
  }
}

WorkerSurvival Survivor::Message(SurvivalState state) const {
  return {.round = machine_.round(),
          .rank = machine_.rank(),
          .local_rank = local_rank_,
          .pid = getpid(),
          .state = state};
}

}  // namespace ddprun
