#include "tests/sim/world/sim_register.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun::sim {
namespace {

constexpr Duration kShortest = std::chrono::microseconds(200);
constexpr Duration kLongest = milliseconds(4);
// A request that waits at a service that is down, or on its way, is tried again after this time.
constexpr Duration kPause = milliseconds(20);
// How late a delayed request may be.
constexpr Duration kLatest = seconds(12);

}  // namespace

class SimRegister::Client final : public CharterRegister {
 public:
  Client(SimRegister* service, SimHost* host, SimTimer::InProcess in_process)
      : service_(*service), host_(*host), in_process_(std::move(in_process)) {}

  void Read(Duration limit, std::function<void(absl::StatusOr<RegisterRecord>)> done) override {
    Start(
        limit, [&service = service_] { return SwapResult{.current = service.record_}; },
        [done = std::move(done)](absl::StatusOr<SwapResult> result) {
          if (!result.ok()) return done(result.status());
          done(std::move(result->current));
        });
  }

  void Swap(const RegisterRecord& expected, std::string lead, std::optional<std::string> charter,
            Duration limit, std::function<void(absl::StatusOr<SwapResult>)> done) override {
    Start(
        limit,
        [&service = service_, expected, lead = std::move(lead), charter = std::move(charter)] {
          return service.Swap(expected, lead, charter);
        },
        std::move(done));
  }

 private:
  using Done = std::function<void(absl::StatusOr<SwapResult>)>;

  void Start(Duration limit, Apply apply, Done done) {
    // Runs in the process with the first result.
    auto waits = std::make_shared<Done>(std::move(done));
    const auto finish = [this, waits, here = std::weak_ptr<bool>(here_)](absl::StatusOr<SwapResult> result) {
      if (here.expired()) return;
      in_process_([waits, here, result = std::move(result)] {
        if (here.expired() || *waits == nullptr) return;
        std::exchange(*waits, nullptr)(result);
      });
    };
    host_.At(host_.now() + limit,
             [finish] { finish(absl::DeadlineExceededError("the register does not answer")); });
    service_.Call(
        host_.id(), std::move(apply),
        [&host = host_, finish](SwapResult result) {
          host.Run([finish, result = std::move(result)] { finish(result); });
        },
        [&host = host_, finish] {
          host.Run([finish] { finish(absl::UnavailableError("the register has no leader")); });
        });
  }

  SimRegister& service_;
  SimHost& host_;
  const SimTimer::InProcess in_process_;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

std::unique_ptr<CharterRegister> SimRegister::Connect(SimHost* host, SimTimer::InProcess in_process) {
  return std::make_unique<Client>(this, host, std::move(in_process));
}

Duration SimRegister::Delay() {
  return random_.Between(kShortest, kLongest) + random_.Between(Duration(0), slow_);
}

void SimRegister::Call(HostId host, Apply apply, std::function<void(SwapResult)> answer,
                       std::function<void()> refused) {
  Duration delay = Delay();
  const bool disturbed = Cut(host) || down_ > 0;
  if (disturbed || random_.Chance(loss_)) {
    switch (random_.Between(0, 3)) {
      case 0:  // the request is lost
        return;
      case 1:
        return clock_->After(delay, std::move(refused));
      case 2:  // the answer is lost
        answer = nullptr;
        break;
      default:
        delay += random_.Between(Duration(0), random_.Chance(0.5) ? Duration(seconds(1)) : kLatest);
    }
  }
  clock_->After(delay, [this, host, apply = std::move(apply), answer = std::move(answer)] {
    Arrive(host, apply, answer);
  });
}

void SimRegister::Arrive(HostId host, Apply apply, std::function<void(SwapResult)> answer) {
  // A request on its way from a host that was cut off meanwhile arrives afterwards.
  if (down_ > 0 || Cut(host)) {
    return clock_->After(
        kPause + random_.Between(Duration(0), kPause),
        [this, host, apply = std::move(apply), answer = std::move(answer)] { Arrive(host, apply, answer); });
  }
  SwapResult result = apply();
  if (answer == nullptr) return;
  clock_->After(Delay(), [this, host, answer = std::move(answer), result = std::move(result)] {
    if (!Cut(host)) answer(result);
  });
}

SwapResult SimRegister::Swap(const RegisterRecord& expected, const std::string& lead,
                             const std::optional<std::string>& charter) {
  if (expected.version != record_.version || expected.exists != record_.exists) {
    return {.swapped = false, .current = record_};
  }
  const RegisterRecord before = record_;
  record_.version += random_.Between(1, 3);
  record_.exists = true;
  record_.lead = lead;
  if (charter) record_.charter = *charter;
  if (observer_) observer_(before, record_);
  return {.swapped = true, .current = record_};
}

void SimRegister::HealAll() {
  down_ = 0;
  cuts_.clear();
  slow_ = Duration(0);
  loss_ = 0;
}

}  // namespace ddprun::sim
