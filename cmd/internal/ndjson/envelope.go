package ndjson

import "slices"

// envelopes are names of a member in which other programs put the document.
var envelopes = []string{"document", "doc", "value", "data", "body", "payload", "_source", "Item"}

// beside are names of members that other programs put beside the document.
var beside = []string{
	"id", "_id", "key", "collection", "etag", "_etag", "ts", "_ts", "ttl", "target", "type", "timestamp",
	"expiresAt", "expires_at", "expires", "expireAt", "expiry", "exp", "deadline", "expiredAt",
	"version", "_version", "rev", "_rev", "revision", "_index", "_type", "_score",
	"created", "createdAt", "created_at", "updated", "updatedAt", "updated_at",
}

// Envelope returns the member of a line that seems to be the document, in an envelope of another program: beside it
// there are only an id and the like. It returns "" if the line does not look so.
func Envelope(text []byte) string {
	if IsExported(text) {
		return ""
	}
	members, err := Members(text)
	if err != nil {
		return ""
	}
	found := ""
	for name, value := range members {
		switch nested := value[0] == '{' || value[0] == '['; {
		case value[0] == '{' && found == "" && slices.Contains(envelopes, name):
			found = name
		case nested && name != "_id" || !slices.Contains(beside, name):
			return ""
		}
	}
	for _, id := range []string{"id", "_id", "key"} {
		if _, ok := members[id]; ok {
			return found
		}
	}
	if len(members) > 1 {
		return ""
	}
	return found // it stands alone
}
