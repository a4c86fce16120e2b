// What a worker and its agent tell each other while it runs, over MUSTER_WORKER_CHANNEL.
//
// Needs no LibTorch. Where there is no such channel (another launcher, none) nothing happens: a
// program need not ask. The protocol, and how a Python script uses it: docs/worker_channel.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace muster {

/// Tells the agent that this process gets on; `step` is for people, and may be any number that
/// grows. May be called in every step: at most ten a second are sent. Never waits and never fails:
/// an agent that is gone, or does not read, is not the training's concern. Any rank, any thread.
///
/// The first call is a promise: under --hang-timeout a program that has reported and falls silent
/// for that long counts as hanging, even if it computes, as NCCL does while it waits.
void report_progress(std::int64_t step);

/// Takes that promise back until the next report: for an evaluation or a checkpoint that may take
/// longer than --hang-timeout. Any rank, any thread.
void end_progress();

/// Until when this process should have saved what it wants to keep, and have ended, if the agent
/// has said that it will be stopped (preemption, a signal to the launcher). Asks the socket, does
/// not wait: cheap enough for every step. The last notice counts. Any rank, any thread.
///
/// The first call is a promise: a program that asks ENDS BY ITSELF when a notice has come. So the
/// agent sends it no SIGTERM with the notice, which would end it in the middle of saving, but at
/// this deadline; SIGKILL comes a tenth of --shutdown-timeout later. Ask before the training
/// begins: what has never asked gets SIGTERM at once, with the notice.
///
/// Ranks hear of it at different moments: agree, before a collective like a checkpoint, with an
/// all_reduce (max) of whether it has come.
std::optional<std::chrono::steady_clock::time_point> preemption_deadline();

}  // namespace muster
