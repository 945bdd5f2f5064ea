// Processes that read and swap the record, and change its voters, while messages are late, lost and repeated, processes are cut
// off, stop and exit, and the network is divided. Whatever happens, the register is linearizable; without exits, it works again when
// the disturbances end.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rendezvous/voters/acceptor.h"
#include "rendezvous/voters/proposer.h"

namespace ddprun {
namespace {

class World {
 public:
  // `exits`: whether processes exit.
  World(uint64_t seed, bool exits) : random_(seed), exits_(exits) {
    hosts_ = 3 + Below(5);
    Start(0);
    for (int i = 1; i < hosts_; ++i) At(UpTo(seconds(5)), [this, i] { Start(i); });
    loss_ = Fraction() * Fraction() * 0.3;
    slow_ = Chance(0.3) ? UpTo(milliseconds(600)) : UpTo(milliseconds(20));
    for (int i = Below(6); i > 0; --i) At(UpTo(kDisturbed), [this] { Disturb(); });
    At(kDisturbed, [this] { Heal(); });
  }

  void Run() {
    while (!queue_.empty() && failure_.empty()) {
      const Item item = queue_.top();
      if (item.at > kEnd) break;
      queue_.pop();
      now_ = item.at;
      item.what();
    }
    if (!failure_.empty() || exits_) return;
    // A host whose clients never succeed after the healing.
    for (const auto& [life, process] : processes_) {
      if (process->last_ok < kDisturbed + seconds(5))
        Fail(absl::StrCat(life, " makes no progress at the end"));
    }
  }

  const std::string& failure() const { return failure_; }
  int swaps() const { return swaps_; }
  int changes() const { return static_cast<int>(newest_set_) - 1; }
  int errors() const { return errors_; }
  int ambiguous() const { return ambiguous_; }
  // Of the calls after the disturbances: all, and those of more than 300 ms.
  int calm() const { return calm_; }
  int slow() const { return slow_calls_; }

 private:
  using True = Duration;
  static constexpr True kDisturbed = seconds(40);
  static constexpr True kCalm = seconds(48);  // the last late message has arrived
  static constexpr True kEnd = seconds(60);
  struct Item {
    True at;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Item& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };
  struct Process {
    std::string life;
    int host = 0;
    Acceptor acceptor;
    Proposer proposer;
    True asleep_until = {};
    uint64_t ticks = 0;        // number of the tick that counts
    RegisterRecord seen = {};  // what it has read or written last
    True last_ok = {};
    // The call in progress.
    True begun = {};
    bool swap = false;
    std::string lead = {};
    std::string charter_id = {};
    int64_t expected = 0;
    int64_t floor = 0;  // the newest version of all calls that were complete at its start
  };

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  double Fraction() { return static_cast<double>(random_() % 1000000) / 1e6; }
  bool Chance(double p) { return Fraction() < p; }
  Duration UpTo(Duration d) {
    return Duration(static_cast<int64_t>(Fraction() * static_cast<double>(d.count())));
  }
  void Fail(const std::string& why) {
    if (failure_.empty()) failure_ = absl::StrCat("after ", now_ / milliseconds(1), " ms: ", why);
  }
  void At(True at, std::function<void()> what) {
    queue_.push({std::max(at, now_), order_++, std::move(what)});
  }
  void After(Duration d, std::function<void()> what) { At(now_ + d, std::move(what)); }
  void InProcess(const std::string& life, std::function<void(Process&)> what) {
    const auto process = processes_.find(life);
    if (process == processes_.end()) return;
    if (now_ < process->second->asleep_until) {
      return At(process->second->asleep_until, [this, life, what] { InProcess(life, what); });
    }
    what(*process->second);
  }

  void Start(int host) {
    const std::string life = absl::StrCat("p", ++lives_, "@", host);
    const Voter self{life, absl::StrCat("host", host)};
    VoterSet voters;
    if (lives_ == 1) {
      voters = {.number = 1, .now = {.voters = {self}, .tie_breaker = life}};
    } else if (!processes_.empty()) {
      // As a node that joins, it learns the voters from a process, which may not know the newest ones.
      voters = std::next(processes_.begin(), Below(static_cast<int>(processes_.size())))
                   ->second->proposer.voters();
    }
    processes_.emplace(life, std::make_unique<Process>(
                                 Process{life, host, Acceptor(life), Proposer({self, random_()}, voters)}));
    Next(life);
  }

  // --- Calls

  void Next(const std::string& life) {
    After(UpTo(milliseconds(Chance(0.5) ? 5 : 800)),
          [this, life] { InProcess(life, [this](Process& p) { Call(p); }); });
  }

  void Call(Process& p) {
    if (Chance(0.2)) {  // the voters of the last round that this process has taken part in
      const auto& other = std::next(processes_.begin(), Below(static_cast<int>(processes_.size())))->second;
      p.proposer.Learn(other->proposer.voters());
    }
    p.begun = now_;
    p.floor = floor_;
    p.swap = Chance(0.6);
    const TimePoint end = Time() + milliseconds(50) + UpTo(milliseconds(1500));
    if (!p.swap) return Step(p, ReadWanted{end});
    const int number = ++calls_;
    SwapWanted wanted{.expected = p.seen, .end = end};
    p.expected = p.seen.version;
    p.charter_id = p.seen.charter;
    if (Chance(0.4)) {
      p.charter_id = absl::StrCat("c", number);
      wanted.charter = p.charter_id;
    }
    p.lead = absl::StrCat("w", number, " on ", p.expected, " with ", p.charter_id);
    wanted.lead = p.lead;
    if (Chance(0.3)) {
      for (int host = 0; host < hosts_; ++host) {
        if (Chance(0.5)) wanted.candidates.push_back(absl::StrCat("host", host));
      }
      std::shuffle(wanted.candidates.begin(), wanted.candidates.end(), random_);
    }
    Step(p, wanted);
  }

  TimePoint Time() const { return TimePoint(now_); }

  void Step(Process& p, const ProposerEvent& event) {
    for (const ProposerEffect& effect : p.proposer.Step(event, Time())) {
      if (const auto* vote = std::get_if<SendVote>(&effect)) {
        Send(p, *vote);
      } else {
        Done(p, std::get<CallDone>(effect).result);
      }
    }
    const uint64_t tick = ++p.ticks;
    if (const auto next = p.proposer.NextDeadline()) {
      At(std::max(now_, next->time_since_epoch()), [this, life = p.life, tick] {
        InProcess(life, [this, tick](Process& q) {
          if (q.ticks == tick) Step(q, ProposerTick{});
        });
      });
    }
  }

  void Done(Process& p, const absl::StatusOr<SwapResult>& result) {
    Next(p.life);
    if (p.begun > kCalm) {
      ++calm_;
      slow_calls_ += now_ - p.begun > milliseconds(300) ? 1 : 0;
    }
    if (!result.ok()) {
      ++errors_;
      ambiguous_ += absl::IsUnavailable(result.status()) ? 1 : 0;
      return;
    }
    p.last_ok = now_;
    const RegisterRecord& record = result->current;
    p.seen = record;
    const std::string what = absl::StrCat(p.life, " got version ", record.version, ", ", record.lead);
    if (record.version < p.floor) {
      Fail(absl::StrCat(what, ", although version ", p.floor, " was known before the call"));
    }
    floor_ = std::max(floor_, record.version);
    if (!record.exists) {
      if (record.version != 0) Fail(what);
      return;
    }
    const auto [at, is_new] = leads_.emplace(record.version, record.lead);
    if (!is_new && at->second != record.lead) {
      Fail(absl::StrCat(what, ", and another process got ", at->second));
    }
    int number = 0;
    long long expected = -1;
    char charter[32] = "";
    std::sscanf(record.lead.c_str(), "w%d on %lld with %31s", &number, &expected, charter);
    if (expected != record.version - 1) Fail(absl::StrCat(what, ": of another version"));
    if (record.charter != charter) Fail(absl::StrCat(what, ", with charter ", record.charter));
    if (refused_.contains(record.lead)) Fail(absl::StrCat(what, ", which was refused"));
    if (!p.swap) return;
    if (result->swapped) {
      ++swaps_;
      if (record.lead != p.lead) Fail(absl::StrCat(what, " for ", p.lead));
    } else {
      refused_.insert(p.lead);
      if (record.version == p.expected) Fail(absl::StrCat(what, ", which was expected"));
    }
    newest_set_ = std::max(newest_set_, p.proposer.voters().number);
  }

  // --- Messages

  bool Cut(int a, int b) const {
    return a != b && (cuts_.contains(a) || cuts_.contains(b) || side_.contains(a) != side_.contains(b));
  }
  bool Lost(int a, int b) { return a != b && (Cut(a, b) || Chance(loss_)); }
  Duration Delay(int a, int b) {
    if (a == b) return Duration(0);
    const Duration late = Chance(late_) ? UpTo(seconds(6)) : Duration(0);
    return UpTo(milliseconds(2)) + UpTo(slow_) + late;
  }

  void Send(Process& p, const SendVote& vote) {
    const int to = std::atoi(vote.address.c_str() + 4);
    const auto answer = [this, life = p.life, number = vote.number](const absl::StatusOr<VoteReply>& reply) {
      InProcess(life, [this, number, reply](Process& q) { Step(q, VoteDone{number, reply}); });
    };
    const int copies = Chance(0.02) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      if (Lost(p.host, to)) continue;
      After(Delay(p.host, to),
            [this, from = p.host, to, request = vote.request, answer] { Arrive(from, to, request, answer); });
    }
    After(vote.limit, [answer] { answer(absl::DeadlineExceededError("no answer")); });
  }

  void Arrive(int from, int to, const VoteRequest& request,
              const std::function<void(const absl::StatusOr<VoteReply>&)>& answer) {
    Process* there = nullptr;
    for (const auto& [life, process] : processes_) {
      if (process->host == to) there = process.get();
    }
    if (there == nullptr) {
      if (!Lost(from, to)) After(Delay(from, to), [answer] { answer(absl::UnavailableError("refused")); });
      return;
    }
    InProcess(there->life, [this, from, to, request, answer](Process& q) {
      const absl::StatusOr<VoteReply> reply = q.acceptor.Vote(request);
      if (!Lost(from, to)) After(Delay(from, to), [answer, reply] { answer(reply); });
    });
  }

  // --- Disturbances

  void Disturb() {
    const int host = Below(hosts_);
    switch (Below(exits_ ? 5 : 4)) {
      case 0:
        cuts_.insert(host);
        return After(UpTo(seconds(8)), [this, host] { cuts_.erase(host); });
      case 1:
        for (const auto& [life, process] : processes_) {
          if (process->host == host) process->asleep_until = now_ + UpTo(seconds(8));
        }
        return;
      case 2:
        loss_ = 0.5;
        return After(UpTo(seconds(4)), [this] { loss_ = std::min(loss_, 0.02); });
      case 3:  // a partition of the network
        side_.clear();
        for (int i = 0; i < hosts_; ++i) {
          if (Chance(0.5)) side_.insert(i);
        }
        return After(UpTo(seconds(8)), [this] { side_.clear(); });
      default:
        for (const auto& [life, process] : processes_) {
          if (process->host != host || processes_.size() == 1) continue;
          processes_.erase(life);
          return After(UpTo(seconds(3)), [this, host] { Start(host); });
        }
    }
  }
  void Heal() {
    cuts_.clear();
    side_.clear();
    loss_ = 0;
    late_ = 0;
    slow_ = milliseconds(1);
    for (const auto& [life, process] : processes_) process->asleep_until = now_;
  }

  std::mt19937_64 random_;
  const bool exits_;
  int hosts_ = 0;
  True now_{};
  uint64_t order_ = 0;
  std::priority_queue<Item> queue_;
  std::map<std::string, std::unique_ptr<Process>> processes_;  // by id
  int lives_ = 0;
  std::set<int> cuts_;  // hosts without a network
  std::set<int> side_;  // hosts on one side of a partition
  double loss_ = 0;
  double late_ = 0.02;  // part of the messages that is late by seconds
  Duration slow_{};

  int calls_ = 0;
  int64_t floor_ = 0;
  std::map<int64_t, std::string> leads_;  // of each version that a call has returned
  std::set<std::string> refused_;
  int swaps_ = 0;
  int errors_ = 0;
  int ambiguous_ = 0;
  int calm_ = 0;
  int slow_calls_ = 0;
  int64_t newest_set_ = 1;
  std::string failure_;
};

void RunSeeds(bool exits) {
  const char* const only = std::getenv("SEED");
  const uint64_t first = only == nullptr ? 1 : std::strtoull(only, nullptr, 10);
  const uint64_t last = only == nullptr ? 400 : first;
  int swaps = 0, changes = 0, errors = 0, ambiguous = 0, calm = 0, slow = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    World world(seed, exits);
    world.Run();
    ASSERT_EQ(world.failure(), "") << "seed " << seed;
    swaps += world.swaps();
    changes += world.changes();
    errors += world.errors();
    ambiguous += world.ambiguous();
    calm += world.calm();
    slow += world.slow();
  }
  std::printf("%d swaps, %d changes of the voters, %d errors, %d of them of writes that may have happened\n",
              swaps, changes, errors, ambiguous);
  std::printf("%d calls after the disturbances, %d of them slow\n", calm, slow);
  if (only != nullptr) return;
  EXPECT_GT(swaps, 10000);
  EXPECT_GT(changes, 500);
  EXPECT_GT(errors, 500);
  EXPECT_GT(ambiguous, 10);
  EXPECT_GT(calm, 10000);
  if (!exits) {
    EXPECT_LT(slow, calm / 1000);
  }
}

TEST(ProposerRandomTest, TheRegisterIsLinearizableAndWorksAgainAfterDisturbances) { RunSeeds(false); }

TEST(ProposerRandomTest, TheRegisterIsLinearizableWhenVotersExit) { RunSeeds(true); }

}  // namespace
}  // namespace ddprun
