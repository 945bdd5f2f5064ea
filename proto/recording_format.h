// What the header of a recording says; docs/recording.md.
#pragma once

namespace ddprun {

inline constexpr char kRecordingMagic[] = "ddprun recording";
inline constexpr int kRecordingFormat = 1;

}  // namespace ddprun
