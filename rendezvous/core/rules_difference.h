// Why a node does not fit a job: its options are other ones.
#pragma once

#include <string>

#include "rendezvous/core/round_policy.h"

namespace ddprun {

// What differs between the rules of the job and those of a node that wants in, as options: "--nnodes=1:3, but
// the job has --nnodes=2:2"; empty if nothing that matters does.
std::string RulesDifference(const RoundPolicy& job, const RoundPolicy& node);

}  // namespace ddprun
