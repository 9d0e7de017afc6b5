package httpapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed18712806/lapse/sink/wire"
)

type object = map[string]any

// messages is the description of the messages over NATS (AsyncAPI 3.0). lapse receives those of clients and
// sends the others. The bodies that HTTP has too have their schemas from the description of the API.
type messages struct {
	prefix  string
	schemas object

	channels, operations, all object
}

// describeMessages describes the messages for a prefix.
func describeMessages(prefix wire.Prefix) ([]byte, error) {
	var api struct {
		Info       object
		Components struct{ Schemas object }
	}
	if err := json.Unmarshal(description, &api); err != nil {
		return nil, err
	}
	m := &messages{string(prefix), api.Components.Schemas, object{}, object{}, object{}}
	m.writes()
	m.outputs()
	m.reads()
	for _, ofHTTP := range []string{"Accepted", "BulkOutcome", "Current", "DueMessage", "Notice", "Problem", "Rejection", "Stored"} {
		delete(m.schemas, ofHTTP)
	}
	return json.Marshal(object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": api.Info["title"], "version": api.Info["version"],
			"description": "JSON documents that expire, and an event the moment each one does: the messages over NATS. In a subject, every byte of an id outside A-Z a-z 0-9 _ - ~ : @ + = , is written as %XX, in upper case. The reply to a publication is JetStream's acknowledgement; the outcome comes later. In a region that follows another one, the log of that region takes the writes; while it does not answer, a publication has no responders. /openapi.json describes the same over HTTP.",
		},
		"defaultContentType": jsonType,
		"channels":           m.channels,
		"operations":         m.operations,
		"components":         object{"schemas": m.schemas, "messages": m.all},
	})
}

func refTo(path string) object { return object{"$ref": "#/" + path} }

func schemaOf(name string) object { return refTo("components/schemas/" + name) }

func ofText(about string) object { return object{"type": "string", "description": about} }

func ofConst(value string) object { return object{"type": "string", "const": value} }

func ofInstant(about string) object {
	return object{"type": "string", "format": "date-time", "description": about}
}

// ofTarget is the schema of a target.
func ofTarget(about string) object {
	return object{"type": "string", "maxLength": wire.MaxTarget, "pattern": `^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}$`, "description": about}
}

// emptyBody is the payload of a message without a body.
var emptyBody = object{"type": "string", "maxLength": 0}

// ofSequence is the schema of a sequence or of an etag.
func ofSequence(about string) object {
	return object{"type": "string", "pattern": "^[1-9][0-9]*$", "description": about}
}

// ofHeaders is the schema of headers. A message may have others, such as those of NATS.
func ofHeaders(properties object, required ...string) object {
	h := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		h["required"] = required
	}
	return h
}

// ofExample is an example of a payload.
func ofExample(payload object) object { return object{"examples": []object{{"payload": payload}}} }

// message adds a message. What is not JSON has no content type.
func (m *messages) message(name, summary string, headers, payload object, more ...object) {
	message := object{"name": name, "summary": summary, "payload": payload}
	if headers != nil {
		message["headers"] = headers
	}
	if payload["$ref"] == nil {
		message["contentType"] = "application/octet-stream"
	}
	for _, o := range more {
		maps.Copy(message, o)
	}
	m.all[name] = message
}

// channel adds a channel with messages. Behind the prefix, its address is a subject; a reply has none.
func (m *messages) channel(name, subject string, of ...string) {
	c := object{"address": nil, "messages": object{}}
	for _, message := range of {
		c["messages"].(object)[message] = refTo("components/messages/" + message)
	}
	if subject != "" {
		c["address"] = m.prefix + "." + subject
		parameters := object{}
		if strings.Contains(subject, "{id}") {
			parameters["id"] = object{"description": "The id of a document: 1 to 255 bytes of UTF-8, with escapes."}
		}
		if strings.Contains(subject, "{collection}") {
			parameters["collection"] = object{"description": "The name of a collection: 1 to 128 of A-Z a-z 0-9 _ -."}
		}
		if strings.Contains(subject, "{target}") {
			parameters["target"] = object{"description": "A target: 1 to 8 tokens of A-Z a-z 0-9 _ -, joined by dots."}
		}
		c["parameters"] = parameters
	}
	m.channels[name] = c
}

// operation adds an operation. reply is the channel of the reply, and at the header that has its subject;
// without it, it is the reply subject of the request.
func (m *messages) operation(name, action, channel, reply, at string) {
	o := object{"action": action, "channel": refTo("channels/" + channel)}
	if reply != "" {
		r := object{"channel": refTo("channels/" + reply)}
		if at != "" {
			r["address"] = object{"location": "$message.header#/" + at}
		}
		o["reply"] = r
	}
	m.operations[name] = o
}

// writes describes what clients publish, and the outcome.
func (m *messages) writes() {
	for _, op := range wire.Ops {
		h := m.ofWrite()
		if op != wire.Delete {
			h[wire.HeaderExpiresAt] = ofInstant("An absolute deadline, in place of a ttl.")
		}
		switch begin := ofInstant("From where the TTL counts; not after the instant of the write."); op {
		case wire.Upsert, wire.Replace, wire.Patch:
			h[wire.HeaderClock] = object{"anyOf": []any{ofConst(wire.ClockKeep), begin}}
		case wire.Create, wire.Touch:
			h[wire.HeaderClock] = begin
		}
		if op == wire.Upsert || op == wire.Create || op == wire.Replace {
			h[wire.HeaderTarget] = ofTarget("Makes the document a message: when it expires, it is published on due.{target}, in place of an event.")
		}
		payload := emptyBody
		if op.HasBody() {
			payload = schemaOf("Document")
		}
		name := string(op)
		m.message(name, "A write: "+name, ofHeaders(h), payload)
		m.channel(name, "write."+name+".{collection}.{id}", name)
		m.operation(name, "receive", name, "outcome", wire.HeaderReplyTo)
	}
	m.message("configure", "The whole configuration of a collection", ofHeaders(m.ofWrite()), schemaOf("NewConfig"), ofExample(object{
		"defaultTtl": 3600, "maxLife": 86400, "warnBefore": []int{300}, "paused": true,
	}))
	m.channel("configure", "config.{collection}", "configure")
	m.operation("configure", "receive", "configure", "outcome", wire.HeaderReplyTo)
	m.message("drop", "The end of a collection and its documents, without events", ofHeaders(m.ofWrite()), emptyBody)
	m.channel("drop", "drop.{collection}", "drop")
	m.operation("drop", "receive", "drop", "outcome", wire.HeaderReplyTo)

	m.schemas["Outcome"] = m.like("Outcome", object{"error": ofText("Of a write that was rejected: what was wrong, and what is allowed.")}, "")
	m.message("outcome", "The outcome of a write, once it is committed or rejected", nil, schemaOf("Outcome"))
	m.channel("outcome", "", "outcome")
}

// ofWrite are the headers that every write may have.
func (m *messages) ofWrite() object {
	return object{
		wire.HeaderIfMatch:    object{"type": "string", "pattern": `^(\*|[1-9][0-9]*)$`, "description": "The etag that the document or the configuration must have; * for any."},
		wire.HeaderReplyTo:    ofText("The subject for the outcome: under _INBOX., or under a prefix that --reply-prefix names."),
		wire.HeaderTrace:      ofText("The W3C trace context. The event or the rejection of the write carries it."),
		jetstream.MsgIDHeader: ofText("The id by which JetStream removes duplicates. It counts for the whole stream."),
	}
}

// like is a schema with more properties. They take the place of a required one, or may be left out if
// place is "".
func (m *messages) like(name string, more object, place string) object {
	s := maps.Clone(m.schemas[name].(object))
	properties := maps.Clone(s["properties"].(object))
	maps.Copy(properties, more)
	if place != "" {
		delete(properties, place)
		required := slices.DeleteFunc(slices.Clone(s["required"].([]any)), func(name any) bool { return name == place })
		for _, name := range slices.Sorted(maps.Keys(more)) {
			required = append(required, name)
		}
		s["required"] = required
	}
	s["properties"] = properties
	return s
}

// outputs describes what lapse publishes to the stream of events.
func (m *messages) outputs() {
	due := m.ofEvent("lapse.message.due.v1")
	due["properties"].(object)[wire.HeaderTarget] = ofTarget("The target.")
	due["properties"].(object)[wire.HeaderTruncated] = object{"type": "string", "pattern": "^[0-9]+$", "description": "The length of the document, if it was too large and the body is empty."}
	due["required"] = append(due["required"].([]string), wire.HeaderTarget)
	m.message("due", "The time of a message has come; the body is the document", due, schemaOf("Document"))
	m.message("changed", "A write has taken effect (changes)", m.ofEvent(wire.TypeCreated, wire.TypeUpdated, wire.TypeDeleted), schemaOf("Change"))
	dropped := m.ofEvent(wire.TypeDropped)
	dropped["required"] = slices.DeleteFunc(dropped["required"].([]string), func(header string) bool { return header == "ce-subject" })
	m.message("dropped", "A collection with changes was dropped", dropped, schemaOf("Change"))
	m.message("expired", "A document has expired", m.ofEvent("lapse.document.expired.v1"), schemaOf("Event"))
	m.schemas["Expiring"] = m.like("Event", object{
		"expiresAt": ofInstant("The deadline."),
		"before":    object{"type": "integer", "minimum": 1, "description": "How many seconds before the deadline this is: one of warnBefore."},
	}, "expiredAt")
	m.message("expiring", "A document will expire (warnBefore)", m.ofEvent("lapse.document.expiring.v1"), schemaOf("Expiring"), ofExample(object{
		"id": "42", "collection": "orders", "document": object{"item": "tea"}, "etag": "3", "ts": "2026-11-22T08:36:19.576Z", "ttl": 60, "expiresAt": "2026-11-22T08:37:19.576Z", "before": 10,
	}))
	rejection := ofHeaders(object{
		wire.HeaderCode:      object{"type": "string", "pattern": "^[45][0-9][0-9]$", "description": "The status."},
		wire.HeaderError:     ofText("What was wrong, and what is allowed."),
		wire.HeaderSubject:   ofText("The subject of the rejected message."),
		wire.HeaderStream:    ofText("The log that has the rejected message."),
		wire.HeaderSeq:       ofSequence("The sequence of the rejected message in the log."),
		wire.HeaderTs:        ofInstant("When the log took the rejected message."),
		wire.HeaderTruncated: object{"type": "string", "pattern": "^[0-9]+$", "description": "The length of the whole body, if this is only its beginning."},
		wire.HeaderTrace:     ofText("The trace context of the rejected message."),
	}, wire.HeaderCode, wire.HeaderError, wire.HeaderSubject, wire.HeaderStream, wire.HeaderSeq)
	m.message("rejected", "A message of the log was rejected; the body is that of the message", rejection, object{"type": "string"})
	for name, subject := range map[string]string{
		"changed": "changed.{collection}.{id}", "dropped": "changed.{collection}", "expired": "expired.{collection}.{id}", "due": "due.{target}", "expiring": "expiring.{collection}.{id}", "rejected": "rejected.{collection}.{id}", "rejectedConfiguration": "rejected.{collection}",
	} {
		message := name
		if name == "rejectedConfiguration" {
			message = "rejected"
		}
		m.channel(name, subject, message)
		m.operation(name, "send", name, "", "")
	}
}

// ofEvent are the headers of an event: those of CloudEvents 1.0, in binary mode.
func (m *messages) ofEvent(kinds ...string) object {
	return ofHeaders(object{
		"ce-specversion":         ofConst("1.0"),
		"ce-type":                object{"type": "string", "enum": kinds},
		"ce-source":              object{"type": "string", "pattern": "^/" + m.prefix + "/[0-9]+/collections/[A-Za-z0-9_-]{1,128}$", "description": "With ce-id it is unique."},
		"ce-subject":             ofText("The id of the document, with escapes."),
		"ce-id":                  ofText("With ce-source it is unique."),
		"ce-time":                ofInstant("The instant of the event."),
		"ce-datacontenttype":     ofConst(jsonType),
		"content-type":           ofConst(jsonType),
		wire.HeaderTrace:         ofText("The trace context of the write."),
		"ce-" + wire.HeaderTrace: ofText("The trace context of the write."),
	}, "ce-specversion", "ce-type", "ce-source", "ce-subject", "ce-id", "ce-time", "ce-datacontenttype", "content-type")
}

// reads describes the requests and replies of the service of reads.
func (m *messages) reads() {
	page := object{"limit": object{"type": "integer", "minimum": 1, "maximum": wire.MaxListLimit}, "continuation": ofText("Of the page before.")}
	list := maps.Clone(page)
	maps.Copy(list, object{
		"order":  object{"type": "string", "enum": []string{string(wire.ByDeadline)}},
		"until":  ofInstant("With order: those that will expire by then."),
		"within": ofText("In place of until: those that will expire within this time, such as 90s, 12h or 7d."),
		"prefix": ofText("Of the ids; not with order."),
	})
	m.schemas["GetRequest"] = object{"type": "object", "additionalProperties": false, "properties": object{
		"renew": object{"type": "boolean", "description": "Wait until the read has renewed the clock of a document that slides, if it is to: the reply has the new deadline."},
	}}
	m.schemas["ListRequest"] = object{"type": "object", "properties": list, "additionalProperties": false}
	m.schemas["CollectionsRequest"] = object{"type": "object", "properties": page, "additionalProperties": false}
	m.schemas["ForecastRequest"] = object{"type": "object", "additionalProperties": false, "properties": object{
		"buckets": object{"type": "integer", "minimum": 1, "maximum": wire.MaxBuckets}, "within": ofText("How far to look ahead, such as 90s, 12h or 7d."),
		"defaultTtl": object{"type": []string{"integer", "null"}, "minimum": -1, "description": "Another default."},
	}}
	m.schemas["Settled"] = object{"type": "object", "additionalProperties": false, "required": []string{"settled"}, "properties": object{
		"settled": object{"type": "integer", "minimum": 0, "description": "Up to this sequence the stream of events has what follows from writes that are committed. Who asks for it, then reads documents, and then reads the stream from behind it, misses no change."},
		"shards": object{"type": "array", "description": "The places in the logs up to which all is committed.", "items": object{
			"type": "object", "additionalProperties": false, "required": []string{"seq", "watermark"}, "properties": object{
				"seq": object{"type": "integer", "minimum": 0}, "watermark": object{"type": "string", "format": "date-time"},
			},
		}},
	}}
	m.message("failed", "A read that failed", ofHeaders(object{
		micro.ErrorCodeHeader: object{"type": "string", "pattern": "^[45][0-9][0-9]$"}, micro.ErrorHeader: ofText("What was wrong."),
	}, micro.ErrorCodeHeader, micro.ErrorHeader), emptyBody)
	document := ofHeaders(object{
		wire.HeaderEtag: ofSequence("The log sequence of the version's write."), wire.HeaderTs: ofInstant("When it was written."),
		wire.HeaderExpiresAt: ofInstant("Absent if it never expires."), wire.HeaderTarget: ofTarget("Of a message: its target."),
	}, wire.HeaderEtag, wire.HeaderTs)
	for _, read := range []struct {
		verb, subject, reply string
		request, headers     object
	}{
		{"get", "read.get.{collection}.{id}", "Document", emptyBody, document},
		{"list", "read.list.{collection}", "Documents", schemaOf("ListRequest"), nil},
		{"query", "read.query.{collection}", "Found", schemaOf("Query"), nil},
		{"count", "read.count.{collection}", "Count", emptyBody, nil},
		{"forecast", "read.forecast.{collection}", "Forecast", schemaOf("ForecastRequest"), nil},
		{"config", "read.config.{collection}", "Config", emptyBody, nil},
		{"settled", "read.settled.{collection}", "Settled", emptyBody, nil},
		{"collections", "read.collections", "Collections", schemaOf("CollectionsRequest"), nil},
	} {
		m.message(read.verb, "A request; its body may also be empty: "+read.verb, nil, read.request)
		m.message(read.verb+"Reply", "The reply to "+read.verb, read.headers, schemaOf(read.reply))
		asked := []string{read.verb}
		if read.verb == "get" {
			m.message("getRenewed", "A request that waits for the renewal of a document that slides", nil, schemaOf("GetRequest"))
			asked = append(asked, "getRenewed")
		}
		m.channel(read.verb, read.subject, asked...)
		m.channel(read.verb+"Reply", "", read.verb+"Reply", "failed")
		m.operation(read.verb, "receive", read.verb, read.verb+"Reply", "")
	}
	maps.Copy(m.all["configReply"].(object), ofExample(object{
		"defaultTtl": 3600, "indexingMode": "consistent", "maxLife": 86400, "warnBefore": []int{300}, "paused": true, "etag": "3",
	}))
}
