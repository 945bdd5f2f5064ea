// Which proto/rendezvous.proto this build speaks; agents and coordinator of a job must have the same.
#pragma once

namespace ddprun {

inline constexpr int kProtocolVersion = 4;

// What the header of a recording says; docs/recording.md.

inline constexpr char kRecordingMagic[] = "ddprun recording";
inline constexpr int kRecordingFormat = 1;

}  // namespace ddprun
