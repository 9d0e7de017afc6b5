package forward

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// event is a message of the stream of events.
type event struct {
	header nats.Header
	data   []byte
}

// id is the webhook-id: the same at every repetition, also in a stream that was made anew, and different
// for each event of all logs. It has no dot, as Standard Webhooks wants it.
func (e event) id() string {
	log, _, _ := strings.Cut(strings.TrimPrefix(e.header.Get("ce-source"), "/"), "/collections/")
	return log + "/" + e.header.Get("ce-id")
}

// extras are headers of lapse that CloudEvents has no attribute for, and what they are called as extensions.
var extras = [][2]string{{wire.HeaderTarget, "lapsetarget"}, {wire.HeaderTruncated, "lapsetruncated"}}

// attributes are those of the CloudEvent. NATS's headers have their values percent-encoded.
func (e event) attributes() map[string]string {
	all := make(map[string]string)
	for name, values := range e.header {
		if attribute, ok := strings.CutPrefix(name, "ce-"); ok && len(values) > 0 {
			value, err := url.PathUnescape(values[0])
			if err != nil {
				value = values[0]
			}
			all[attribute] = value
		}
	}
	for _, extra := range extras {
		if value := e.header.Get(extra[0]); value != "" {
			all[extra[1]] = value
		}
	}
	return all
}

// structured is the event in the JSON format of CloudEvents. It does not change the bytes of the data; data that are no
// JSON, which lapse does not publish, are in base64. What is given in addition are extensions.
func (e event) structured(extensions ...string) ([]byte, error) {
	all := e.attributes()
	for i := 0; i < len(extensions); i += 2 {
		all[extensions[i]] = extensions[i+1]
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	if err := out.Encode(all); err != nil {
		return nil, err
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("}\n"))
	if len(all) > 0 && len(e.data) > 0 { // somebody else may have published one without a header
		text = append(text, ',')
	}
	switch {
	case len(e.data) == 0:
	case json.Valid(e.data):
		text = append(append(text, `"data":`...), e.data...)
	default:
		text = fmt.Appendf(text, `"data_base64":%q`, base64.StdEncoding.EncodeToString(e.data))
	}
	return append(text, '}'), nil
}

// request is the body of a request and its headers, in structured or in binary mode.
func (e event) request(binary bool) (http.Header, []byte, error) {
	h := http.Header{}
	if trace := e.header.Get(wire.HeaderTrace); trace != "" {
		h.Set(wire.HeaderTrace, trace)
	}
	if !binary {
		body, err := e.structured()
		h.Set("Content-Type", "application/cloudevents+json; charset=UTF-8")
		return h, body, err
	}
	h.Set("Content-Type", "application/json")
	for name, values := range e.header {
		if strings.HasPrefix(name, "ce-") && name != "ce-datacontenttype" && len(values) > 0 {
			h.Set(name, values[0]) // encoded as HTTP wants it too
		}
	}
	for _, extra := range extras {
		if value := e.header.Get(extra[0]); value != "" {
			h.Set("ce-"+extra[1], value)
		}
	}
	return h, e.data, nil
}
