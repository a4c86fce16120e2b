// The form of a log line of muster and musterd, which is torchrun's, too.
#pragma once

namespace muster {

/// For spdlog: "W1121 09:08:26.123456 4711 muster] text". The logger has the program's name.
inline constexpr const char* kLogLinePattern = "%L%m%d %H:%M:%S.%f %P %n] %v";

}  // namespace muster
