// Candidates on hosts whose clocks run up to 10 % fast or slow, and a register that is slow, stops, loses requests and
// answers, and carries out requests long after their senders have given up. Whatever happens, at most one candidate leads,
// and what a leader has promised ends with its lead.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "rendezvous/charter/leadership.h"

namespace ddprun {
namespace {

constexpr Duration kLease = seconds(5);
using True = Duration;  // true time since the start

// The order of charters: (epoch of the leader, number).
using CharterId = std::pair<int64_t, int64_t>;

CharterId Parse(const std::string& charter) {
  CharterId id = {0, 0};
  const std::vector<std::string> parts = absl::StrSplit(charter, ' ');
  if (parts.size() == 2) {
    EXPECT_TRUE(absl::SimpleAtoi(parts[0], &id.first) && absl::SimpleAtoi(parts[1], &id.second)) << charter;
  }
  return id;
}

class World {
 public:
  // `faults`: whether anything but ordinary delays happens in the first half of the run.
  World(uint64_t seed, bool faults) : random_(seed), faults_(faults) {
    const int n = 2 + Below(4);
    for (int i = 0; i < n; ++i) {
      hosts_.push_back({.rate = 0.9 + 0.2 * Fraction(), .offset = seconds(Below(100000))});
      Start(i);
    }
    if (faults_) Disturb();
  }

  void Run() {
    const True end = 40 * kLease;
    while (!queue_.empty() && queue_.top().at <= end && failure_.empty()) {
      const Item item = queue_.top();
      queue_.pop();
      now_ = item.at;
      item.what();
      Check();
    }
    // Nothing has been disturbed for 20 leases.
    if (failure_.empty() && !closed_ && Leader() < 0) Fail("no candidate leads at the end");
  }

  const std::string& failure() const { return failure_; }
  int leads() const { return leads_; }
  int lost() const { return lost_; }
  int late_swaps() const { return late_swaps_; }

 private:
  struct Item {
    True at;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Item& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };
  struct Host {
    double rate;
    Duration offset;
    std::unique_ptr<LeadershipMachine> machine = nullptr;
    uint64_t life = 0;       // number of the process; 0: none runs
    True asleep_until = {};  // the process is stopped
    True cut_until = {};     // calls do not reach the register
    uint64_t calls = 0;      // the number of the call that counts
    int64_t charters = 0;    // number of CharterChanged in this lead
    int64_t epoch = 0;       // set: leads
    int following = -1;
    bool pending = false;  // a charter is not yet written
    bool ending = false;
  };

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  double Fraction() { return static_cast<double>(random_() % 1000000) / 1e6; }
  Duration UpTo(Duration d) {
    return Duration(static_cast<int64_t>(Fraction() * static_cast<double>(d.count())));
  }
  void Fail(const std::string& why) {
    if (failure_.empty()) failure_ = absl::StrCat("after ", now_ / milliseconds(1), " ms: ", why);
  }
  void At(True at, std::function<void()> what) {
    queue_.push({std::max(at, now_), order_++, std::move(what)});
  }
  // Runs `what` on the host if its process still lives, and when it is awake.
  void OnHost(int i, True at, std::function<void()> what) {
    At(at, [this, i, life = hosts_[i].life, what = std::move(what)] {
      Host& host = hosts_[i];
      if (host.life != life || life == 0) return;
      if (now_ < host.asleep_until) return OnHost(i, host.asleep_until, what);
      what();
    });
  }

  BootTime ClockOf(const Host& host) const {
    return BootTime(host.offset +
                    Duration(static_cast<int64_t>(static_cast<double>(now_.count()) * host.rate)));
  }
  True TrueTime(const Host& host, BootTime at) const {
    return Duration(
        static_cast<int64_t>(static_cast<double>((at.time_since_epoch() - host.offset).count()) / host.rate) +
        1);
  }

  void Start(int i) {
    Host& host = hosts_[i];
    host.life = ++lives_;
    host.machine = std::make_unique<LeadershipMachine>(LeadershipRules{
        .lease = kLease, .id = absl::StrCat("life ", host.life), .address = absl::StrCat("host:", i)});
    host.epoch = 0;
    host.following = -1;
    host.ending = false;
    Step(i, LeadershipTick{});
  }
  void Kill(int i) {
    hosts_[i].life = 0;
    hosts_[i].epoch = 0;
    for (int other = 0; other < static_cast<int>(hosts_.size()); ++other) {
      if (hosts_[other].following == i) Disconnect(other, i, now_ + UpTo(kLease));
    }
  }
  void Disconnect(int i, int from, True at) {
    OnHost(i, at, [this, i, from] {
      if (hosts_[i].following != from) return;
      hosts_[i].following = -1;
      Step(i, Disconnected{});
    });
  }

  void Step(int i, const LeadershipEvent& event) {
    Host& host = hosts_[i];
    for (const LeadershipEffect& effect : host.machine->Step(event, ClockOf(host))) {
      std::visit([this, i](const auto& e) { Do(i, e); }, effect);
    }
    if (host.epoch != 0 && host.machine->state() == LeadershipMachine::State::kLeading) Promise(host);
    if (const auto next = host.machine->NextDeadline()) {
      OnHost(i, TrueTime(host, *next), [this, i, wake = ++host_wakes_[i]] {
        if (host_wakes_[i] == wake) Step(i, LeadershipTick{});
      });
    } else {
      ++host_wakes_[i];
    }
  }
  // A node with the slowest clock gets a fence of all that is left of the lead.
  void Promise(const Host& host) {
    const Duration left = host.machine->leads_until() - ClockOf(host);
    if (left <= Duration::zero()) return;
    fences_end_ =
        std::max(fences_end_, now_ + Duration(static_cast<int64_t>(static_cast<double>(left.count()) / 0.9)));
  }

  // --- The register

  Duration Delay() { return UpTo(milliseconds(Below(10) == 0 ? 200 : 5)); }
  // Carries out `call` at the register, and its answer.
  void Call(int i, Duration limit, std::function<LeadershipEvent()> call, LeadershipEvent failed) {
    Host& host = hosts_[i];
    const uint64_t number = ++host.calls;
    const auto answer = [this, i, number](const LeadershipEvent& event) {
      if (hosts_[i].calls != number) return;
      ++hosts_[i].calls;
      Step(i, event);
    };
    OnHost(i, TrueTime(host, ClockOf(host) + limit), [answer, failed] { answer(failed); });
    const bool cut = now_ < host.cut_until;
    const int fate = faults_ && (cut || now_ < 20 * kLease) ? Below(cut ? 4 : 30) : 9;
    True arrives = std::max(now_ + Delay(), register_stopped_until_);
    if (fate == 0) return;                       // the request is lost
    if (fate == 1) arrives += UpTo(2 * kLease);  // it arrives after its request has timed out
    if (fate == 2) return OnHost(i, now_ + Delay(), [answer, failed] { answer(failed); });
    const bool heard = fate != 3;  // or the answer is lost
    At(arrives, [this, i, call = std::move(call), answer, heard, life = host.life] {
      const LeadershipEvent event = call();
      if (heard && hosts_[i].life == life) OnHost(i, now_ + Delay(), [answer, event] { answer(event); });
    });
  }
  void Do(int i, const ReadRegister& e) {
    Call(
        i, e.limit, [this] { return ReadDone{record_}; }, ReadDone{absl::UnavailableError("lost")});
  }
  void Do(int i, const SwapRegister& e) {
    const True given_up = now_ + 2 * e.limit;
    Call(
        i, e.limit,
        [this, e, given_up]() -> LeadershipEvent {
          if (e.version != record_.version) return SwapDone{SwapResult{false, record_}};
          if (now_ > given_up) ++late_swaps_;
          record_ = {.version = record_.version + 1 + Below(3),
                     .exists = true,
                     .lead = e.lead,
                     .charter = e.charter.value_or(record_.charter)};
          return SwapDone{SwapResult{true, {.version = record_.version, .exists = true}}};
        },
        SwapDone{absl::UnavailableError("lost")});
  }

  // --- Effects of the machines

  void Do(int i, const FollowLeader& e) {
    int leader = -1;
    EXPECT_TRUE(absl::SimpleAtoi(e.address.substr(5), &leader));
    OnHost(i, now_ + Delay(), [this, i, leader, epoch = e.epoch] {
      if (hosts_[i].epoch != 0) return;
      if (leader != i && hosts_[leader].epoch == epoch) {
        hosts_[i].following = leader;
        return Step(i, Connected{.standby = Below(2) == 0});
      }
      OnHost(i, now_ + kLease / 10, [this, i] {
        if (hosts_[i].following < 0 && hosts_[i].epoch == 0) Step(i, Disconnected{});
      });
    });
  }
  void Do(int i, const BeginToLead& e) {
    Host& host = hosts_[i];
    ++leads_;
    if (closed_) Fail("a closed job is led again");
    if (e.epoch <= last_epoch_) Fail(absl::StrCat("epoch ", e.epoch, " after ", last_epoch_));
    if (const int other = Leader(); other >= 0)
      Fail(absl::StrCat("host ", i, " leads while host ", other, " does"));
    if (!e.handed_over && now_ < fences_end_) Fail("a fence of the last leader has not fired");
    if (Parse(e.charter) < last_written_)
      Fail(absl::StrCat("the charter is ", e.charter, ", but ", last_written_.first, " ",
                        last_written_.second, " was written"));
    last_epoch_ = e.epoch;
    fences_end_ = {};
    host.epoch = e.epoch;
    host.charters = 0;
    host.pending = host.ending = false;
    host.following = -1;
    Work(i, e.epoch);
  }
  // The job of the leader changes from time to time, and may end.
  void Work(int i, int64_t epoch) {
    OnHost(i, now_ + UpTo(kLease), [this, i, epoch] {
      Host& host = hosts_[i];
      if (host.epoch != epoch || host.ending) return;
      if (faults_ && now_ < 20 * kLease && !host.pending && Below(30) == 0) {
        host.ending = true;
        fences_end_ = {};  // it has stopped the workers of all nodes
        return Step(
            i, LeaderEnds{Below(3) == 0 && now_ > 10 * kLease ? Lead::State::kClosed : Lead::State::kLeft});
      }
      host.pending = true;
      Step(i, CharterChanged{absl::StrCat(epoch, " ", ++host.charters)});
      Work(i, epoch);
    });
  }
  void Do(int i, const CharterWritten& e) {
    if (e.number > hosts_[i].charters) Fail("a charter is written that was not given");
    if (e.number == hosts_[i].charters) hosts_[i].pending = false;
    last_written_ = std::max(last_written_, CharterId(hosts_[i].epoch, e.number));
  }
  void Do(int i, const LeadLost& e) {
    ++lost_;
    if (!faults_) Fail(absl::StrCat("a healthy leader was deposed: ", e.why));
    EndLead(i);
  }
  void Do(int i, const LeadEnded& e) {
    if (e.written && DecodeLead(record_.lead)->state == Lead::State::kClosed) closed_ = true;
    EndLead(i);
    if (!closed_) OnHost(i, now_ + UpTo(kLease), [this, i] { Start(i); });
  }
  void EndLead(int i) {
    hosts_[i].epoch = 0;
    hosts_[i].ending = false;
    for (int other = 0; other < static_cast<int>(hosts_.size()); ++other) {
      if (hosts_[other].following == i) Disconnect(other, i, now_ + Delay());
    }
  }
  void Do(int, const JobIsOver&) {
    if (!closed_ && DecodeLead(record_.lead)->state != Lead::State::kClosed) Fail("the job is not over");
    closed_ = true;
  }
  void Do(int, const RegisterFails&) {}

  // Returns the host that may act as a leader now; -1 if there is none.
  int Leader() {
    int found = -1;
    for (int i = 0; i < static_cast<int>(hosts_.size()); ++i) {
      const Host& host = hosts_[i];
      if (host.epoch == 0 || host.machine->state() != LeadershipMachine::State::kLeading) continue;
      if (ClockOf(host) >= host.machine->leads_until()) continue;
      if (found >= 0) Fail(absl::StrCat("hosts ", found, " and ", i, " lead"));
      found = i;
    }
    return found;
  }
  void Check() { Leader(); }

  void Disturb() {
    const True at = now_ + UpTo(2 * kLease);
    if (at > 20 * kLease) return;
    At(at, [this] {
      const int leader = Leader();
      const int i = leader >= 0 && Below(2) == 0 ? leader : Below(static_cast<int>(hosts_.size()));
      Host& host = hosts_[i];
      switch (Below(5)) {
        case 0:
          Kill(i);
          At(now_ + UpTo(3 * kLease), [this, i] {
            if (hosts_[i].life == 0) Start(i);
          });
          break;
        case 1:
          host.asleep_until = now_ + UpTo(3 * kLease);
          break;
        case 2:
          host.cut_until = now_ + UpTo(3 * kLease);
          break;
        case 3:
          register_stopped_until_ = now_ + UpTo(2 * kLease);
          break;
        case 4:
          if (host.following >= 0) Disconnect(i, host.following, now_);
          break;
      }
      Disturb();
    });
  }

  std::mt19937_64 random_;
  const bool faults_;
  std::vector<Host> hosts_;
  std::map<int, uint64_t> host_wakes_;
  std::priority_queue<Item> queue_;
  uint64_t order_ = 0;
  uint64_t lives_ = 0;
  True now_ = {};
  RegisterRecord record_;
  True register_stopped_until_ = {};
  // What must hold.
  int64_t last_epoch_ = 0;
  CharterId last_written_ = {0, 0};
  True fences_end_ = {};
  bool closed_ = false;
  std::string failure_;
  int leads_ = 0, lost_ = 0, late_swaps_ = 0;
};

// LEADERSHIP_SEEDS=N and LEADERSHIP_FIRST=SEED run more, or a certain one.
int FromEnv(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  int number = otherwise;
  return value != nullptr && absl::SimpleAtoi(value, &number) ? number : otherwise;
}

TEST(LeadershipRandomTest, AtMostOneLeadsWhateverHappens) {
  const int first = FromEnv("LEADERSHIP_FIRST", 1), seeds = FromEnv("LEADERSHIP_SEEDS", 3000);
  int leads = 0, lost = 0, late_swaps = 0;
  for (int seed = first; seed < first + seeds; ++seed) {
    World world(static_cast<uint64_t>(seed), /*faults=*/true);
    world.Run();
    ASSERT_EQ(world.failure(), "") << "seed " << seed;
    leads += world.leads();
    lost += world.lost();
    late_swaps += world.late_swaps();
  }
  std::printf("%d seeds: %d leads began, %d were lost, %d swaps came late\n", seeds, leads, lost, late_swaps);
  if (seeds < 100) return;
  EXPECT_GT(leads, 2 * seeds);
  EXPECT_GT(lost, seeds / 2);
  EXPECT_GT(late_swaps, seeds / 50);
}

TEST(LeadershipRandomTest, AHealthyLeaderIsNeverDeposed) {
  for (int seed = 1; seed <= 300; ++seed) {
    World world(static_cast<uint64_t>(seed), /*faults=*/false);
    world.Run();
    ASSERT_EQ(world.failure(), "") << "seed " << seed;
    ASSERT_EQ(world.leads(), 1) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ddprun
