package wire

import (
	"errors"
	"strconv"
)

// Rejection is a message that lapse did not apply, and why. lapse publishes it as the body of that message, with headers.
type Rejection struct {
	Code      int    `json:"code"`
	Error     string `json:"error"`
	Subject   string `json:"subject"` // of the message
	Seq       uint64 `json:"seq"`     // of the message in the log
	Body      string `json:"body"`
	Truncated int    `json:"truncated,omitempty"` // the message's bytes, if Body is not all of them
}

// parse reads the headers, but for the sequence.
func (r *Rejection) parse(header map[string][]string) (err error) {
	get := valuesOf(header)
	r.Error, r.Subject = get(HeaderError), get(HeaderSubject)
	var truncatedErr error
	if text := get(HeaderTruncated); text != "" {
		r.Truncated, truncatedErr = strconv.Atoi(text)
	}
	r.Code, err = strconv.Atoi(get(HeaderCode))
	return errors.Join(err, truncatedErr)
}
