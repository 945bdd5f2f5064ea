#include "worker_sdk/recover/recover_in.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker_sdk/core/strings.h"
#include "worker_sdk/ddp/last_step.h"
#include "worker_sdk/param/broadcast.h"
#include "worker_sdk/param/facts.h"
#include "worker_sdk/param/parameters.h"
#include "worker_sdk/recover/decide_step.h"

namespace ddprun {
namespace {

using internal::LastStep;

bool SameValues(const std::vector<Parameter>& a, const std::vector<Parameter>& b) {
  return std::ranges::equal(a, b, [](const Parameter& x, const Parameter& y) {
    return x.value.data == y.value.data && x.value.count == y.value.count;
  });
}

// What is wrong with this rank's options; empty if nothing is.
std::string FaultOf(const RecoverOptions& o, const Device& gpu) {
  if (o.step == nullptr) return "RecoverOptions::step is null";
  if (*o.step < -1) return StrCat("*RecoverOptions::step is ", *o.step);
  if (std::string fault = FaultOf(o.parameters, gpu); !fault.empty() && !o.parameters.empty()) return fault;
  if (o.optimizer != nullptr && !SameValues(o.optimizer->parameters(), o.parameters)) {
    return "RecoverOptions::optimizer is for other parameters";
  }
  if (o.last != nullptr) {
    const LastStep last(*o.last);
    if (!last.is_atomic()) return "RecoverOptions::last needs DataParallelOptions::atomic_steps";
    if (!SameValues(o.last->parameters(), o.parameters))
      return "RecoverOptions::last is for other parameters";
    if (last.prepared() >= 0 && last.optimizer() != o.optimizer) {
      return StrCat("RecoverOptions::optimizer is not that of step ", last.prepared(), ", which is prepared");
    }
  }
  for (const Tensor& tensor : o.more) {
    if (const std::string place = FaultOfPlace(tensor.device, gpu); !place.empty()) {
      return "a tensor of RecoverOptions::more is " + place;
    }
  }
  return "";
}

// What is brought to joiners, and what must be equal on all ranks of it.
struct State {
  std::vector<Tensor> tensors;
  std::vector<Fact> facts;
};

State StateOf(const RecoverOptions& o) {
  State state;
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    state.facts.push_back({StrCat("the type of ", name), StrCat(tensor.count, " ", NameOf(tensor.dtype))});
    state.facts.push_back({StrCat("the device of ", name), DeviceFact(tensor.device)});
    state.tensors.push_back(tensor);
  };
  // Numbers first, because facts with the same index must be about the same thing.
  std::vector<StateTensor> of_optimizer;
  if (o.optimizer != nullptr) of_optimizer = o.optimizer->state();
  state.facts = {{"the number of parameters", StrCat(o.parameters.size())},
                 {"the optimizer", o.optimizer == nullptr ? "none" : std::string(o.optimizer->name())},
                 {"the number of state tensors of the optimizer", StrCat(of_optimizer.size())},
                 {"the number of tensors in RecoverOptions::more", StrCat(o.more.size())}};
  AppendFacts(o.parameters, &state.facts);
  for (const Parameter& p : o.parameters) state.tensors.push_back(p.value);
  for (size_t i = 0; i < of_optimizer.size(); ++i) {
    state.facts.push_back({StrCat("state tensor ", i, " of the optimizer"), of_optimizer[i].name});
    add(of_optimizer[i].name, of_optimizer[i].values);
  }
  for (size_t i = 0; i < o.more.size(); ++i) add(StrCat("tensor ", i, " of RecoverOptions::more"), o.more[i]);
  return state;
}

// Collective. The standings of all ranks.
StatusOr<std::vector<Standing>> Gather(Communicator& world, const Standing& mine) {
  constexpr int64_t kNumbers = 4;
  const int64_t own[kNumbers] = {mine.previous_round, mine.step, mine.prepared, mine.node};
  std::vector<int64_t> all(kNumbers * world.size());
  DDPRUN_RETURN_IF_ERROR(world.AllGather(ConstTensor{own, kNumbers, DType::kInt64}, View(all)).Wait());
  std::vector<Standing> standings;
  for (int r = 0; r < world.size(); ++r) {
    const int64_t* n = &all[kNumbers * r];
    standings.push_back({.previous_round = n[0], .step = n[1], .prepared = n[2], .node = n[3]});
  }
  return standings;
}

// Collective over the world. Copies the state of the root to the joiners.
//   replaced: called before the state of this rank changes.
Status BringState(Communicator& world, const Decision& decision, const std::vector<Tensor>& tensors,
                  const std::function<void()>& replaced) {
  const bool is_root = world.rank() == decision.root;
  const bool joins = std::ranges::count(decision.joiners, world.rank()) > 0;
  if (decision.joiners.empty()) return OkStatus();
  if (joins) replaced();
  // The other survivors keep their state, so that a broadcast that breaks cannot damage them.
  const bool others = static_cast<int>(decision.joiners.size()) + 1 < world.size();
  if (!others || world.device().type == DeviceType::kCuda) {
    // On a GPU they take part and drop what they receive: NCCL would need longer to connect a group without them.
    return BroadcastTensors(world, tensors, decision.root, is_root || joins);
  }
  DDPRUN_ASSIGN_OR_RETURN(const Communicator group,
                          world.Split(is_root || joins ? 0 : Communicator::kNoColor, is_root ? 0 : 1));
  return is_root || joins ? BroadcastTensors(group, tensors, 0) : OkStatus();
}

// OK if the updates that the GPU has run and runs for this rank are complete. On the host: OK.
Status AwaitUpdates(const RecoverOptions& o, const std::optional<LastStep>& last) {
  if (last) DDPRUN_RETURN_IF_ERROR(LastStep(*last).AwaitWork());
  return o.optimizer == nullptr ? OkStatus() : o.optimizer->status();
}

StatusOr<Recovered> Run(const StateHistory& history, int64_t round, int64_t node, Communicator& world,
                        const RecoverOptions& o) {
  const State state = StateOf(o);
  DDPRUN_RETURN_IF_ERROR(CompareFacts(world, state.facts, FaultOf(o, world.device())));
  std::optional<LastStep> last;
  if (o.last != nullptr) last.emplace(*o.last);
  const auto give_up = [&](const Status& why) {
    world.Abort(why.message());  // the other ranks wait for this one
    return why;
  };
  if (const Status complete = AwaitUpdates(o, last); !complete.ok()) return give_up(complete);
  const auto count = [&] {
    if (!last || last->committed() <= *o.step) return;
    *o.step = last->committed();
    if (o.committed != nullptr) o.committed(*o.step);
  };
  count();

  const Standing mine{.previous_round = history.previous_round(),
                      .step = *o.step,
                      .prepared = last ? last->prepared() : -1,
                      .node = node};
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Standing> standings, Gather(world, mine));
  DDPRUN_ASSIGN_OR_RETURN(const Decision decision, DecideStep(round, standings));
  if (decision.actions[world.rank()] == StepAction::kApply) {
    if (const Status applied = last->Apply(); !applied.ok()) return give_up(applied);
    count();
  }
  if (last) {
    last->Drop();
    last->Release();  // before the next collective, so that new buffers find the memory
  }
  if (decision.step < 0) *o.step = -1;
  if (decision.root >= 0) {
    DDPRUN_RETURN_IF_ERROR(BringState(world, decision, state.tensors, [&] { *o.step = -1; }));
    *o.step = decision.step;
  }
  return Recovered{.root = decision.root, .num_joiners = static_cast<int>(decision.joiners.size())};
}

}  // namespace

StatusOr<Recovered> RecoverIn(StateHistory& history, int64_t round, int64_t node, Communicator world,
                              const RecoverOptions& options) {
  DDPRUN_ASSIGN_OR_RETURN(const Recovered recovered, Run(history, round, node, world, options), "recover");
  history.Recovered(round);
  return recovered;
}

}  // namespace ddprun
