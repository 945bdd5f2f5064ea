// Explores all states of a group of a few operations: whatever NCCL, the device, the fabric and the clock do, in each
// order, the decisions of Watch keep the promises that are checked in World::Apply, and all operations end.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "worker_sdk/comm/nccl/watch.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Question = OperationView::Question;
using State = OperationView::State;
using enum CommState;

constexpr size_t kOperations = 3;
const TimePoint kNow = TimePoint() + seconds(1000);

struct Operation {
  enum Life : uint8_t { kNotStarted, kPending, kDone };
  Life life = kNotStarted;
  State state = State::kQueued;
  bool happened = false;
  bool complete = false;  // the event happened because the result is there
  bool late = false;
  bool late_long_ago = false;  // in flight and answered: longer than kTimeToNameHungCall
  Question question = Question::kNotAsked;

  auto operator<=>(const Operation&) const = default;
};

// How often each action was taken.
struct Counts {
  int ok = 0, failed = 0, record = 0, call = 0, ask = 0, end = 0, abort = 0;
};

struct World {
  CommState comm = kInitializing;
  bool failed_long_ago = false;  // kFailed: longer than kTimeToNameDeadPeer
  bool device_lost = false;
  bool fabric_ended = false;
  std::array<Operation, kOperations> operations;

  auto operator<=>(const World&) const = default;

  [[nodiscard]] bool usable() const { return comm == kInitializing || comm == kReady || comm == kInProgress; }
  [[nodiscard]] bool late() const {
    return std::any_of(operations.begin(), operations.end(), [](const Operation& o) { return o.late; });
  }
  [[nodiscard]] std::vector<size_t> Pending() const {
    std::vector<size_t> pending;
    for (size_t i = 0; i < kOperations; ++i) {
      if (operations[i].life == Operation::kPending) pending.push_back(i);
    }
    return pending;
  }

  // What the watch decides if it looks at the operations first, and at the rest when the world is `later`.
  [[nodiscard]] WatchActions Decide(const World& later) const {
    std::vector<OperationView> views;
    for (const size_t i : Pending()) {
      const Operation& o = operations[i];
      views.push_back({.state = o.state,
                       .happened = o.happened,
                       .deadline = o.late_long_ago ? kNow - kTimeToNameHungCall
                                   : o.late        ? kNow
                                                   : TimePoint::max(),
                       .question = o.question,
                       .answer = DeadlineExceededError("answer")});
    }
    GroupView view{.comm = later.comm, .fabric_ended = later.fabric_ended, .operations = views};
    view.comm_error = UnavailableError("nccl");
    view.failed_since = later.failed_long_ago ? kNow - kTimeToNameDeadPeer : kNow;
    if (later.device_lost) view.device_error = DataLossError("device");
    if (later.fabric_ended) view.fabric_error = AbortedError("fabric");
    const WatchActions actions = Watch(view, kNow);
    if (later.device_lost) {
      EXPECT_FALSE(actions.abort || actions.call || actions.record) << "uses a lost device";
      for (const auto& finish : actions.finish)
        EXPECT_FALSE(finish.status.ok()) << "a result on a lost device";
    }
    return actions;
  }

  // Takes the actions, whose indices are those of `pending`. Returns the worlds that may follow.
  [[nodiscard]] std::vector<World> Apply(const WatchActions& actions, const std::vector<size_t>& pending,
                                         Counts* counts) const {
    World next = *this;
    for (const auto& [index, status] : actions.finish) {
      Operation& o = next.operations[pending.at(index)];
      EXPECT_EQ(o.life, Operation::kPending) << "ended twice";
      if (status.ok()) {
        EXPECT_TRUE(o.complete) << "OK without a result";
      } else {
        EXPECT_TRUE(fabric_ended);
        const bool says_so = comm == kStuck && status.code() == StatusCode::kInternal;
        EXPECT_TRUE(comm == kAborted || device_lost || says_so) << "failed while its memory is in use";
      }
      ++(status.ok() ? counts->ok : counts->failed);
      o = Operation{.life = Operation::kDone};
    }
    std::vector<World> worlds{next};
    if (actions.record) {
      ++counts->record;
      Operation& o = worlds[0].operations[pending.at(*actions.record)];
      EXPECT_EQ(o.state, State::kCalled);
      EXPECT_TRUE(comm == kReady || comm == kFailed) << "an event before NCCL has put work into the stream";
      o.state = State::kInFlight;
    }
    if (actions.call) {
      ++counts->call;
      const size_t called = pending.at(*actions.call);
      EXPECT_TRUE(comm == kReady || comm == kFailed) << "a call to a communicator in progress";
      EXPECT_EQ(next.operations[called].state, State::kQueued);
      for (size_t i = 0; i < called; ++i) {
        EXPECT_TRUE(next.operations[i].life == Operation::kDone ||
                    next.operations[i].state == State::kInFlight)
            << "not in order";
      }
      worlds[0].operations[called].state = State::kCalled;
      if (comm == kReady) {
        for (const CommState result : {kInProgress, kFailed}) {
          worlds.push_back(worlds[0]);
          worlds.back().comm = result;
        }
      }
    }
    if (actions.ask) {
      ++counts->ask;
      Operation& o = worlds[0].operations[pending.at(*actions.ask)];
      EXPECT_TRUE(o.late);
      EXPECT_EQ(o.question, Question::kNotAsked);
      for (const Operation& other : next.operations) EXPECT_NE(other.question, Question::kAsked);
      o.question = Question::kAsked;
    }
    if (actions.end_fabric) {
      ++counts->end;
      EXPECT_FALSE(actions.end_fabric->ok());
      worlds[0].fabric_ended = true;
    }
    if (actions.abort) {
      ++counts->abort;
      EXPECT_TRUE(fabric_ended);
      EXPECT_FALSE(comm == kAborting || comm == kAborted || comm == kStuck) << "aborted twice";
      worlds[0].comm = kAborting;
    }
    EXPECT_LE(actions.record.has_value() + actions.call.has_value() + actions.ask.has_value() +
                  actions.end_fabric.has_value() + actions.abort,
              1);
    return worlds;
  }

  // What may happen by itself.
  [[nodiscard]] std::vector<World> Steps() const {
    std::vector<World> worlds;
    const auto add = [&](const std::function<void(World&)>& change) {
      worlds.push_back(*this);
      change(worlds.back());
    };
    for (size_t i = 0; i < kOperations; ++i) {
      const Operation& o = operations[i];
      if (o.life == Operation::kNotStarted) {  // in order; those after it are not started either
        add([&](World& w) { w.operations[i].life = Operation::kPending; });
        break;
      }
      if (o.life == Operation::kDone) continue;
      if (!o.late) add([&](World& w) { w.operations[i].late = true; });
      if (o.state == State::kInFlight && o.question == Question::kAnswered && !o.late_long_ago)
        add([&](World& w) { w.operations[i].late_long_ago = true; });
      if (o.question == Question::kAsked)
        add([&](World& w) { w.operations[i].question = Question::kAnswered; });
      if (o.state == State::kInFlight && !o.happened && !device_lost) {
        // After an error and during an abort kernels end without a result.
        add([&](World& w) {
          w.operations[i].happened = true;
          w.operations[i].complete = usable();
        });
      }
    }
    if (comm == kInitializing || comm == kInProgress) add([](World& w) { w.comm = kReady; });
    if (usable()) add([](World& w) { w.comm = kFailed; });
    if (comm == kFailed && !failed_long_ago) add([](World& w) { w.failed_long_ago = true; });
    if (comm == kAborting) add([](World& w) { w.comm = kAborted; });
    if (comm == kAborting) add([](World& w) { w.comm = kStuck; });
    if (!fabric_ended) add([](World& w) { w.fabric_ended = true; });
    if (!device_lost) add([](World& w) { w.device_lost = true; });
    return worlds;
  }
};

std::string ToText(const World& world) {
  std::string text =
      StrCat("comm ", static_cast<int>(world.comm), world.failed_long_ago ? " long ago" : "",
             world.device_lost ? ", device lost" : "", world.fabric_ended ? ", fabric ended" : "");
  for (const Operation& o : world.operations) {
    StrAppend(&text, "; life ", static_cast<int>(o.life), " state ", static_cast<int>(o.state),
              o.happened ? " happened" : "", o.late ? " late" : "", " question ",
              static_cast<int>(o.question));
  }
  return text;
}

// Takes actions and, where there are none, calls `wait`, until no operation is pending, or forever.
World RunUntilQuiet(World world, const std::function<void(World&)>& wait, Counts* counts) {
  constexpr int kMoreThanEnough = 100;
  for (int i = 0; i < kMoreThanEnough && !world.Pending().empty(); ++i) {
    const WatchActions actions = world.Decide(world);
    if (actions.none())
      wait(world);
    else
      world = world.Apply(actions, world.Pending(), counts).front();
  }
  return world;
}

std::set<World> Explore(Counts* counts) {
  std::set<World> known;
  std::deque<World> next;
  const auto add = [&](const World& world) {
    if (known.insert(world).second) next.push_back(world);
  };
  for (add(World{}); !next.empty() && !testing::Test::HasFailure(); next.pop_front()) {
    const World world = next.front();
    SCOPED_TRACE(ToText(world));
    std::vector<World> later = world.Steps();
    for (const World& w : later) add(w);
    later.push_back(world);
    for (const World& w : later) {  // something may happen between the two looks
      const WatchActions actions = world.Decide(w);
      std::vector<World> latest = w.Steps();  // and before the actions are taken
      latest.push_back(w);
      for (const World& l : latest) {
        for (const World& after : l.Apply(actions, world.Pending(), counts)) add(after);
      }
    }
  }
  return known;
}

TEST(WatchExplorationTest, KeepsItsPromisesInAllStates) {
  Counts counts;
  const std::set<World> worlds = Explore(&counts);
  ASSERT_FALSE(HasFailure());
  EXPECT_GT(worlds.size(), 10000);
  for (const int count :
       {counts.ok, counts.failed, counts.record, counts.call, counts.ask, counts.end, counts.abort})
    EXPECT_GT(count, 100);

  for (const World& world : worlds) {
    SCOPED_TRACE(ToText(world));
    // The other ranks do nothing any more.
    const World timed_out = RunUntilQuiet(
        world,
        [](World& w) {
          w.failed_long_ago = w.comm == kFailed;
          if (w.comm == kAborting) w.comm = kAborted;
          for (const size_t i : w.Pending()) {
            w.operations[i].late = w.operations[i].late_long_ago = true;
            if (w.operations[i].question == Question::kAsked) w.operations[i].question = Question::kAnswered;
          }
        },
        &counts);
    EXPECT_TRUE(timed_out.Pending().empty()) << "never ends: " << ToText(timed_out);
    // After the end of the fabric the deadlines do not matter.
    if (world.fabric_ended) {
      const World ended = RunUntilQuiet(
          world,
          [](World& w) {
            if (w.comm == kAborting) w.comm = kAborted;
          },
          &counts);
      EXPECT_TRUE(ended.Pending().empty()) << "does not end after the fabric: " << ToText(ended);
    }
    // Nothing fails: the operations succeed.
    if (world.usable() && !world.fabric_ended && !world.device_lost && !world.late()) {
      Counts healthy_counts;
      const World healthy = RunUntilQuiet(
          world,
          [](World& w) {
            w.comm = kReady;
            for (const size_t i : w.Pending()) {
              if (w.operations[i].state == State::kInFlight)
                w.operations[i].happened = w.operations[i].complete = true;
            }
          },
          &healthy_counts);
      EXPECT_TRUE(healthy.Pending().empty()) << "does not progress: " << ToText(healthy);
      EXPECT_EQ(healthy_counts.failed + healthy_counts.end + healthy_counts.abort, 0);
    }
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace ddprun
