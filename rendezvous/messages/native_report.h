// The native messages for reports, notices, questions and answers: fields to JSON and back.
#pragma once

#include "rendezvous/messages/native_json.h"
#include "rendezvous/rounds/node_report.h"
#include "rendezvous/rounds/rendezvous_events.h"

namespace muster::native {

using OrderedJson = nlohmann::ordered_json;

/// Also for the record of a run.
OrderedJson write(const FailureReport& failure);
FailureReport read_failure(Fields fields);

/// Texts are cut to kMaxReportTextBytes: `stderr_end` at its beginning, the others at their end.
void write(const NodeReport& report, OrderedJson& out);
void write(const NodeAsked& asked, OrderedJson& out);
void write(const NodeAnswered& answered, OrderedJson& out);
void write(const Notice& notice, OrderedJson& out);
void write(const NotAMember& lost, OrderedJson& out);

void read(Fields& fields, NodeReport& report);
void read(Fields& fields, NodeAsked& asked);
void read(Fields& fields, NodeAnswered& answered);
void read(Fields& fields, Notice& notice);
void read(Fields& fields, NotAMember& lost);

}  // namespace muster::native
