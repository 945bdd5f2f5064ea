// Files of /proc may fail in the middle: their process has ended.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace ddprun {

// All of a file, or what could be read of it; never throws, as iterators over a stream do.
inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace ddprun
