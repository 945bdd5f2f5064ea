// Devices in messages.
#pragma once

#include <string>

#include "ddprun/tensor.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {

// "on the host", "on GPU 2".
inline std::string Describe(const Device& device) {
  if (device.type == DeviceType::kHost) return "on the host";
  if (device.type == DeviceType::kCuda) return StrCat("on GPU ", device.index);
  return StrCat("on a device of the unknown type ", static_cast<int>(device.type));
}

}  // namespace ddprun
