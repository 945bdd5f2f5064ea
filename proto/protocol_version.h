// Which proto/rendezvous.proto this build speaks; agents and coordinator of a job must have the same.
#pragma once

namespace ddprun {

inline constexpr int kProtocolVersion = 4;

}  // namespace ddprun
