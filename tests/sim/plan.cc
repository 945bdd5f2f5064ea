#include "tests/sim/plan.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/job_rules.h"
#include "tests/sim/world/random.h"

namespace ddprun::sim {
namespace {

class Planner {
 public:
  explicit Planner(uint64_t seed) : random_(seed, "plan") { script_.settings.seed = seed; }

  Script Draw() {
    DrawSettings();
    for (int host = 0; host < settings_.num_hosts; ++host) {
      if (host == 0 || random_.Chance(0.85)) Add(Millis(0, 5000), FaultKind::kStart, {host});
    }
    const Duration calm = settings_.calm;
    for (Duration at = Millis(100, 20000); at < calm; at += Millis(100, 15000)) {
      // Some faults come in bursts, so that a fault hits the recovery from the previous one.
      const int burst = random_.Chance(0.3) ? static_cast<int>(random_.Between(2, 5)) : 1;
      Duration then = at;
      for (int i = 0; i < burst && then < calm; ++i) {
        DrawFault(then);
        then += random_.Chance(0.5) ? Millis(0, 20) : Millis(20, 1500);
      }
    }
    // For some seeds, an operator or a signal ends the job.
    if (random_.Chance(0.15)) {
      const bool with_its_host = settings_.hosted && random_.Chance(0.5);
      End(calm - Millis(1, 5000), with_its_host ? FaultKind::kTermAgent : FaultKind::kStopJob);
    }
    DrawNotices();
    const bool hangs = settings_.seed % 3 == 1 || settings_.seed % 15 == 0;
    if (hangs && settings_.plain == 0) DrawHangs();
    if (settings_.seed % 3 == 1 && settings_.plain == 0) DrawStraggler();
    if (settings_.seed % 3 == 0) DrawRegister();
    std::stable_sort(script_.faults.begin(), script_.faults.end(),
                     [](const Fault& a, const Fault& b) { return a.at < b.at; });
    return std::move(script_);
  }

 private:
  Duration Millis(int64_t lo, int64_t hi) { return milliseconds(random_.Between(lo, hi)); }
  int AnyHost() { return static_cast<int>(random_.Between(0, settings_.num_hosts - 1)); }
  // Like AnyHost, but may also return the coordinator's host if that host is separate.
  int AnyMachine() {
    return static_cast<int>(random_.Between(0, settings_.num_hosts - (settings_.hosted ? 1 : 0)));
  }

  // Each rule that DrawSettings does not set gets a value above its minimum with probability 0.3, and
  // otherwise keeps its default.
  void DrawOtherRules() {
    static constexpr absl::string_view kKnown[] = {
        "min_nodes",          "max_nodes",     "node_unit",
        "max_restarts",       "scale_up",      "max_restarts_without_progress",
        "first_last_call_ms", "last_call_ms",  "join_timeout_ms",
        "lease_ms",           "min_uptime_ms", "snapshot_timeout_ms",
        "hang_timeout_ms",    "on_hang"};
    for (const JobRuleField& field : JobRuleFields()) {
      if (std::find(std::begin(kKnown), std::end(kKnown), field.name) != std::end(kKnown)) continue;
      if (!random_.Chance(0.3)) continue;
      const int64_t steps = field.kind == JobRuleField::Kind::kDuration ? 5000 : 3;
      const int64_t least = field.min + 1, most = std::min(field.max, field.min + steps);
      field.set(settings_.rules, least == most ? least : random_.Between(least, most));
    }
  }

  void DrawSettings() {
    Settings& s = settings_;
    s.rules.node_unit = random_.Chance(0.75) ? 1 : static_cast<int>(random_.Between(2, 3));
    s.rules.min_nodes =
        s.rules.node_unit * static_cast<int>(random_.Between(1, s.rules.node_unit == 1 ? 4 : 2));
    s.rules.max_nodes = s.rules.min_nodes + s.rules.node_unit * static_cast<int>(random_.Between(
                                                                    0, s.rules.node_unit == 1 ? 3 : 2));
    s.rules.max_restarts = static_cast<int>(random_.Between(0, 12));
    s.rules.max_restarts_without_progress = random_.Chance(0.4) ? static_cast<int>(random_.Between(1, 4)) : 0;
    s.rules.scale_up = static_cast<ScaleUp>(random_.Between(0, 2));
    s.rules.first_last_call = random_.Chance(0.3) ? Duration(0) : Millis(500, 20000);
    s.rules.last_call = random_.Chance(0.2) ? Duration(0) : Millis(0, 15000);
    s.rules.join_timeout = random_.Chance(0.1) ? Millis(20000, 40000) : Duration(seconds(300));
    s.rules.lease = Millis(1000, 6000);
    s.grace = Millis(1000, 10000);
    if (random_.Chance(0.5)) {
      s.save = Millis(0, 100);
    } else if (random_.Chance(0.5)) {
      s.save = Millis(ToMillis(s.grace) / 10, ToMillis(s.grace) * 9 / 10);
    } else {  // Saving may take longer than a lease, so the node must renew its lease while its workers save.
      s.grace = std::max(s.grace, s.rules.lease + Millis(1000, 5000));
      s.save = Millis(ToMillis(s.rules.lease), ToMillis(s.grace));
    }
    s.drain_timeout = s.grace + seconds(10) + s.rules.lease;
    s.rules.snapshot_timeout = Millis(1000, 20000);
    s.rules.min_uptime = random_.Chance(0.25) ? Millis(100, 3000) : Duration(0);
    s.num_hosts = s.rules.max_nodes + static_cast<int>(random_.Between(0, 2));
    s.hosted = random_.Chance(0.5);
    s.expected_hosts =
        random_.Chance(0.3) ? static_cast<int>(random_.Between(s.rules.min_nodes, s.num_hosts)) : 0;
    s.plain = random_.Chance(0.3);
    s.calm = Millis(5000, 150000);
    s.step_time = s.plain ? Millis(5000, 120000) : Millis(50, 1500);
    // Slightly more steps than fit before calm, so that most jobs continue after the last fault.
    s.total_steps = static_cast<int>(s.calm / s.step_time) + static_cast<int>(random_.Between(5, 30));
    s.snapshot_every = static_cast<int>(random_.Between(1, 60));
    s.survives = s.plain == 0 && random_.Chance(0.5);
    s.park = Millis(0, random_.Chance(0.3) ? 2000 : 100);
    s.loss_permille = random_.Chance(0.5) ? 0 : static_cast<int>(random_.Between(1, 20));
    s.twice_permille = random_.Chance(0.5) ? 0 : static_cast<int>(random_.Between(1, 20));
    s.max_delay = Millis(1, random_.Chance(0.2) ? 60 : 5);
    DrawOtherRules();
  }

  void Add(Duration at, FaultKind kind, std::vector<int> hosts, Duration length = Duration(0), int n = 0,
           std::vector<int> to = {}) {
    at = std::min(at, settings_.calm - milliseconds(1));
    script_.faults.push_back({at, kind, std::move(hosts), std::move(to), length, n});
  }

  // Ends the job, or the agent that hosts the coordinator. Sometimes adds a second request or signal, which
  // may come before the workers have saved.
  void End(Duration at, FaultKind kind) {
    const std::vector<int> hosts = kind == FaultKind::kStopJob ? std::vector<int>{} : std::vector<int>{0};
    Add(at, kind, hosts);
    if (random_.Chance(0.5)) Add(at + Millis(20, ToMillis(settings_.save) + 100), kind, hosts);
  }

  void DrawFault(Duration at) {
    struct Choice {
      FaultKind kind;
      int weight;
    };
    static constexpr Choice kChoices[] = {
        {FaultKind::kStart, 40},    {FaultKind::kFailWorker, 22}, {FaultKind::kKillAgent, 6},
        {FaultKind::kStopAgent, 8}, {FaultKind::kTermAgent, 4},   {FaultKind::kKillWarden, 2},
        {FaultKind::kPowerOff, 5},  {FaultKind::kSuspend, 6},     {FaultKind::kDeafWorkers, 4},
        {FaultKind::kNoExec, 2},    {FaultKind::kCut, 8},         {FaultKind::kCutOut, 4},
        {FaultKind::kCutIn, 4},     {FaultKind::kSlow, 3},        {FaultKind::kLossy, 3},
        {FaultKind::kReset, 4},     {FaultKind::kStall, 5},       {FaultKind::kDiskFull, 3},
        {FaultKind::kDiskSlow, 3},  {FaultKind::kDrain, 8},       {FaultKind::kHangWorkers, 5},
        {FaultKind::kEndParked, 8}, {FaultKind::kFailAt, 16},
    };
    // Faults that end the job are rare, because faults after the end have no effect.
    if (random_.Chance(0.004)) return End(at, FaultKind::kStopJob);
    if (random_.Chance(0.006)) return Add(at, FaultKind::kEndCoordinator, {});
    int sum = 0;
    for (const Choice& choice : kChoices) sum += choice.weight;
    int64_t pick = random_.Between(0, sum - 1);
    const Choice* choice = kChoices;
    while (pick >= choice->weight) pick -= (choice++)->weight;
    DrawFault(at, choice->kind);
  }

  void DrawFault(Duration at, FaultKind kind) {
    const Duration longest = std::max(Duration(milliseconds(1)), settings_.calm - at);
    const Duration length = std::min(random_.Chance(0.5) ? Millis(10, 2000) : Millis(2000, 15000), longest);
    const bool of_survivors =
        kind == FaultKind::kHangWorkers || kind == FaultKind::kEndParked || kind == FaultKind::kFailAt;
    if (of_survivors && !settings_.survives) kind = FaultKind::kFailWorker;
    switch (kind) {
      case FaultKind::kStart:
        Add(at, kind, {AnyHost()});
        break;
      case FaultKind::kFailWorker:
        static constexpr int kEnds[] = {1, 2, 137, -SIGSEGV, -SIGABRT, -SIGKILL};
        Add(at, kind, {AnyHost()}, Duration(0), kEnds[random_.Between(0, 5)]);
        // Sometimes another worker fails independently at nearly the same time. Both failures together cost
        // one restart.
        if (random_.Chance(0.4)) Add(at + Millis(0, 30), kind, {AnyHost()}, Duration(0), 1);
        break;
      case FaultKind::kHangWorkers:
        Add(at, kind, {AnyHost()}, length);
        Add(at + Millis(0, 10), FaultKind::kFailWorker, {AnyHost()}, Duration(0), -SIGKILL);
        break;
      case FaultKind::kEndParked:  // soon after a worker has ended, while the others wait for the next round
        Add(at, FaultKind::kFailWorker, {AnyHost()}, Duration(0), -SIGKILL);
        for (int host = 0; host < settings_.num_hosts; ++host) {
          if (random_.Chance(0.6)) Add(at + Millis(1, 250), kind, {host});
        }
        break;
      case FaultKind::kFailAt:
        Add(at, kind, {AnyHost()}, Duration(0), static_cast<int>(random_.Between(0, 2)));
        break;
      case FaultKind::kKillAgent:
      case FaultKind::kTermAgent:
      case FaultKind::kKillWarden:
      case FaultKind::kDrain:
        // The job ends with the coordinator's own agent, so faults of that agent are rare.
        if (const int host = AnyHost(); host != 0 || !settings_.hosted || random_.Chance(0.1)) {
          Add(at, kind, {host});
        }
        break;
      case FaultKind::kPowerOff:
        if (const int host = AnyMachine(); (host != 0 || !settings_.hosted) && host < settings_.num_hosts) {
          Add(at, kind, {host}, length);
        }
        break;
      case FaultKind::kSlow:
        Add(at, kind, {AnyMachine()}, length, static_cast<int>(random_.Between(10, 1500)));
        break;
      case FaultKind::kLossy:
        Add(at, kind, {AnyMachine()}, length, static_cast<int>(random_.Between(5, 60)));
        break;
      case FaultKind::kCut:
      case FaultKind::kCutOut:
      case FaultKind::kCutIn:
        DrawCut(at, kind, length);
        break;
      case FaultKind::kSuspend:
        if (random_.Chance(0.3)) {
          Add(at, kind, {AnyHost()}, length);
        } else {  // May suspend a writer during a snapshot until another node has taken over the directory.
          Add(at, FaultKind::kDiskSlow, {}, seconds(14), 8000);
          const int host = AnyHost();
          std::vector<int> hosts = {host};
          if (settings_.num_hosts > 2) hosts.push_back((host + 1) % settings_.num_hosts);
          Add(at + Millis(6000, 13000), kind, hosts, settings_.rules.lease + Millis(4000, 9000));
        }
        break;
      case FaultKind::kDiskFull:
      case FaultKind::kStall:
        Add(at, kind, {}, length);
        break;
      case FaultKind::kDiskSlow:
        Add(at, kind, {}, length, static_cast<int>(random_.Between(10, 8000)));
        break;
      default:
        Add(at, kind, {AnyHost()}, length);
    }
  }

  // Notices of pre-emption, in some seeds. They have random numbers of their own, so that other seeds do not change with them.
  void DrawNotices() {
    Random random(settings_.seed, "notices");
    const auto millis = [&random](int64_t lo, int64_t hi) { return milliseconds(random.Between(lo, hi)); };
    if (!random.Chance(0.4)) return;
    if (random.Chance(0.5)) {
      settings_.on_notice = random.Chance(0.5) ? Settings::kExit : Settings::kPark;
    } else {
      settings_.on_notice = static_cast<int>(random.Between(Settings::kExit, Settings::kEndBySignal));
    }
    const std::vector<Fault> others = script_.faults;
    const int notices = static_cast<int>(random.Between(1, 4));
    for (int i = 0; i < notices; ++i) {
      Duration at = millis(1000, ToMillis(settings_.calm) - 1);
      // Some notices follow another fault, so that they come while a round is recovering, draining or gathered.
      if (random.Chance(0.5))
        at = others[random.Between(0, static_cast<int64_t>(others.size()) - 1)].at + millis(0, 3000);
      const bool all = random.Chance(0.15);
      const int one = static_cast<int>(random.Between(0, settings_.num_hosts - 1));
      std::vector<int> hosts;
      for (int host = 0; host < settings_.num_hosts; ++host) {
        if (!all && host != one) continue;
        // The job ends with the coordinator's host, so its notices are rare.
        if (host > 0 || !settings_.hosted || random.Chance(0.3)) hosts.push_back(host);
      }
      if (hosts.empty()) continue;
      const Duration left = random.Chance(0.5) ? millis(1000, 10000) : millis(5000, 90000);
      const bool returns = random.Chance(0.3);
      int back_in = 0;
      if (returns) back_in = static_cast<int>(ToMillis(left) + random.Between(1, 40000));
      if (!returns && random.Chance(0.2)) back_in = -1;
      Add(at, FaultKind::kNotice, hosts, left, back_in);
      if (random.Chance(0.3)) {
        Add(at + millis(0, ToMillis(left)), FaultKind::kNotice, hosts,
            random.Chance(0.5) ? millis(1000, 10000) : millis(1000, 60000), random.Chance(0.2) ? -1 : 0);
      }
      if (!returns && !random.Chance(0.6)) continue;
      for (const int host : hosts) {
        Add(at + (returns ? Duration(milliseconds(back_in)) : left + millis(0, 20000)), FaultKind::kStart,
            {host});
      }
    }
  }

  // Rounds that stand still are found, and workers pause. They have random numbers of their own, as notices have.
  void DrawHangs() {
    Random random(settings_.seed, "hangs");
    const auto millis = [&random](int64_t lo, int64_t hi) { return milliseconds(random.Between(lo, hi)); };
    // Most other faults end the round before a hung rank is found, so that there are fewer of them, and more time.
    const double kept = random.Chance(0.7) ? 0.15 : 0.6;
    std::erase_if(script_.faults, [&](const Fault& fault) {
      return fault.kind != FaultKind::kStart && !random.Chance(kept);
    });
    settings_.calm = std::max(settings_.calm, Duration(millis(40000, 200000)));
    settings_.total_steps =
        static_cast<int>(settings_.calm / settings_.step_time) + static_cast<int>(random.Between(5, 30));
    JobRules& rules = settings_.rules;
    rules.on_hang = random.Chance(0.75) ? OnHang::kRestart : OnHang::kReport;
    // A slow rank joins its collective before half of the limit, when the evidence is collected.
    constexpr int kLongestStep = 4500;
    const bool learnt = random.Chance(0.4);
    Duration hung_after = seconds(30);
    if (!learnt) hung_after = millis(2 * kLongestStep + 1000, 40000);
    rules.hang_timeout = learnt ? HangTimeout::Auto() : HangTimeout::Of(hung_after);
    const int most = static_cast<int>(kLongestStep * 100 / (ToMillis(settings_.step_time) * 3 / 2));
    const int faults = static_cast<int>(random.Between(1, 2 + ToMillis(settings_.calm) / 30000));
    for (int i = 0; i < faults; ++i) {
      const Duration at = millis(1000, ToMillis(settings_.calm) - 1);
      std::vector<int> hosts = {static_cast<int>(random.Between(0, settings_.num_hosts - 1))};
      if (const int other = static_cast<int>(random.Between(0, settings_.num_hosts - 1));
          other != hosts[0] && random.Chance(0.2)) {
        hosts.push_back(other);
      }
      const int64_t pick = random.Between(0, 9);
      if (pick < 5) {
        Add(at, FaultKind::kHangRank, std::move(hosts));
      } else if (pick < 8) {
        Add(at, FaultKind::kStallRank, std::move(hosts),
            millis(ToMillis(hung_after) / 10, ToMillis(hung_after) * 17 / 20));
      } else {
        Add(at, FaultKind::kSlowRank, std::move(hosts), millis(2000, 30000),
            static_cast<int>(random.Between(101, std::clamp(most, 102, 299))));
      }
    }
  }

  // One host is slow for so long that its ranks are named, and there are no other faults.
  void DrawStraggler() {
    Random random(settings_.seed, "straggler");
    const int64_t slow = random.Between(150, 250);
    const Duration longest = settings_.step_time * 3 / 2 * slow / 100;
    if (!random.Chance(0.1) || settings_.num_hosts < 2 || longest > seconds(4)) return;
    std::erase_if(script_.faults, [](const Fault& fault) { return fault.kind != FaultKind::kStart; });
    settings_.calm = seconds(240);
    settings_.total_steps =
        static_cast<int>(settings_.calm / settings_.step_time) + static_cast<int>(random.Between(5, 30));
    Add(seconds(30), FaultKind::kSlowRank, {static_cast<int>(random.Between(0, settings_.num_hosts - 1))},
        seconds(200), static_cast<int>(slow));
  }

  // The job has a register, and its coordinators have faults. They have random numbers of their own, as notices have.
  void DrawRegister() {
    Random random(settings_.seed, "register");
    const auto millis = [&random](int64_t lo, int64_t hi) { return milliseconds(random.Between(lo, hi)); };
    settings_.with_register = 1;
    settings_.hosted = 0;
    settings_.voters = settings_.seed % 2 == 0 && settings_.rules.max_nodes > 1;
    if (settings_.voters) settings_.rules.quorum = Quorum::kVoters;
    const int64_t lease = ToMillis(settings_.rules.lease), calm = ToMillis(settings_.calm);
    const int leader = settings_.num_hosts;
    const std::vector<Fault> others = script_.faults;
    const int faults = static_cast<int>(random.Between(2, 2 + calm / 20000));
    for (int i = 0; i < faults; ++i) {
      Duration at = millis(1000, calm - 1);
      if (random.Chance(0.3))
        at = others[random.Between(0, static_cast<int64_t>(others.size()) - 1)].at + millis(0, 2 * lease);
      // From shorter than a lease to some leases.
      const Duration length = millis(lease / 10, random.Chance(0.5) ? lease : 4 * lease);
      // In some cases the leader does not reach the register, or reaches it slowly, before it fails.
      if (random.Chance(0.4)) {
        const Duration before = millis(lease / 10, lease * 9 / 10);
        const bool cut = random.Chance(0.5);
        if (settings_.voters) {
          DrawOfVoters(random, at, before + length, leader);
        } else if (cut) {
          Add(at, FaultKind::kRegisterCut, {leader}, before + length);
        } else {
          Add(at, FaultKind::kRegisterSlow, {}, before + length,
              static_cast<int>(random.Between(10, lease / 4)));
        }
        at += before;
      }
      DrawOfLeader(random, at, length, leader);
      // Most hosts that are lost come back.
      if (random.Chance(0.7)) {
        const Duration back = at + length + millis(0, 3 * lease);
        for (int host = 0; host < settings_.num_hosts; ++host) Add(back, FaultKind::kStart, {host});
      }
    }
  }

  void DrawOfLeader(Random& random, Duration at, Duration length, int leader) {
    static constexpr FaultKind kKinds[] = {
        FaultKind::kKillAgent,   FaultKind::kPowerOff,     FaultKind::kSuspend,
        FaultKind::kStopAgent,   FaultKind::kTermAgent,    FaultKind::kCut,
        FaultKind::kCut,         FaultKind::kDrain,        FaultKind::kNotice,
        FaultKind::kRegisterCut, FaultKind::kRegisterDown, FaultKind::kRegisterSlow,
        FaultKind::kRegisterCut, FaultKind::kRegisterDown, FaultKind::kRegisterLossy,
        FaultKind::kStall,
    };
    const FaultKind kind = kKinds[random.Between(0, std::size(kKinds) - 1)];
    if (settings_.voters && IsOfRegister(kind)) return DrawOfVoters(random, at, length, leader);
    const int lease = static_cast<int>(ToMillis(settings_.rules.lease));
    switch (kind) {
      case FaultKind::kNotice:
        return Add(at, kind, {leader}, std::max(length, kShortestNotice), random.Chance(0.3) ? -1 : 0);
      case FaultKind::kRegisterDown:
      case FaultKind::kStall:
        return Add(at, kind, {}, length);
      case FaultKind::kRegisterSlow:
        return Add(at, kind, {}, length, static_cast<int>(random.Between(1, lease / 2)));
      case FaultKind::kRegisterLossy:
        return Add(at, kind, {}, 3 * length, static_cast<int>(random.Between(10, 90)));
      case FaultKind::kRegisterCut: {
        std::vector<int> hosts;
        if (random.Chance(0.6)) {
          hosts.push_back(leader);
        } else {
          for (int host = 0; host < settings_.num_hosts; ++host) {
            if (random.Chance(0.5)) hosts.push_back(host);
          }
        }
        if (!hosts.empty()) Add(at, kind, hosts, length);
        return;
      }
      case FaultKind::kPowerOff:
      case FaultKind::kSuspend:
      case FaultKind::kStopAgent:
      case FaultKind::kCut:
        return Add(at, kind, {leader}, length);
      default:
        return Add(at, kind, {leader});
    }
  }

  // A fault of several voters at once, or of the network between them.
  void DrawOfVoters(Random& random, Duration at, Duration length, int leader) {
    static constexpr FaultKind kKinds[] = {
        FaultKind::kCut,       FaultKind::kCut,       FaultKind::kCutIn,    FaultKind::kCutOut,
        FaultKind::kSlow,      FaultKind::kSlow,      FaultKind::kLossy,    FaultKind::kSuspend,
        FaultKind::kStopAgent, FaultKind::kKillAgent, FaultKind::kPowerOff, FaultKind::kTermAgent,
    };
    FaultKind kind = kKinds[random.Between(0, std::size(kKinds) - 1)];
    std::vector<int> hosts;
    if (random.Chance(0.3)) hosts.push_back(leader);
    for (int host = 0; host < settings_.num_hosts; ++host) {
      if (random.Chance(0.3)) hosts.push_back(host);
    }
    if (hosts.empty()) hosts.push_back(static_cast<int>(random.Between(0, settings_.num_hosts)));
    // Losing several voters at once mostly ends the job, so it is rare.
    const bool ends =
        kind == FaultKind::kKillAgent || kind == FaultKind::kPowerOff || kind == FaultKind::kTermAgent;
    if (ends && !random.Chance(0.3)) hosts.resize(1);
    int n = 0;
    if (kind == FaultKind::kSlow)
      n = static_cast<int>(random.Between(10, ToMillis(settings_.rules.lease) / 4));
    if (kind == FaultKind::kLossy) n = static_cast<int>(random.Between(5, 60));
    const bool lasts = kind != FaultKind::kKillAgent && kind != FaultKind::kTermAgent;
    Add(at, kind, std::move(hosts), lasts ? length : Duration(0), n);
  }

  // Cuts off one host or a group of hosts, or cuts one link.
  void DrawCut(Duration at, FaultKind kind, Duration length) {
    const int a = AnyMachine();
    if (random_.Chance(0.5)) return Add(at, kind, {a}, length);
    if (random_.Chance(0.5)) {
      const int b = AnyMachine();
      if (b != a) Add(at, kind, {a}, length, 0, {b});
      return;
    }
    std::vector<int> group;
    for (int host = 0; host < settings_.num_hosts; ++host) {
      if (random_.Chance(0.4)) group.push_back(host);
    }
    if (!group.empty()) Add(at, kind, std::move(group), length);
  }

  Random random_;
  Script script_;
  Settings& settings_ = script_.settings;
};

}  // namespace

Script DrawScript(uint64_t seed) { return Planner(seed).Draw(); }

}  // namespace ddprun::sim
