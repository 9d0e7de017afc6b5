package main

// targetTeeth break due messages: those of documents with a target.
var targetTeeth = []tooth{
	{"target-lost-by-a-touch", "G3", "processor/internal/fold/clock.go",
		"A message that is moved to another time expires as an event.",
		`		h.Target = live.Header.Target`,
		`		h.Target = ""`},
	{"due-message-not-in-the-tail", "G3 S6", "sink/events/place.go",
		"A takeover does not find the due messages that a former owner has published, and publishes them again.",
		`wire.KindDue: keyExpired, `,
		``},
	{"due-message-without-its-body", "G3", "processor/internal/fold/decide.go",
		"In a collection with eventBody false, a due message has no body.",
		`		o.Message = events.Due(`,
		`		event.Document, event.Omitted = d.document(key, v, x)
		o.Message = events.Due(`},
}
