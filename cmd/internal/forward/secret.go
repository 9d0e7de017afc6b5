package forward

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Secrets sign what is posted, as Standard Webhooks has it: each makes a signature, and the receiver
// needs only one of them.
type Secrets []*webhooks.Webhook

// ReadSecrets reads a file with a secret on each line: whsec_ and 24 to 64 bytes in base64.
func ReadSecrets(file string) (all Secrets, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(line, "whsec_"))
		if err != nil || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("%s: line %d is not valid: use a secret of Standard Webhooks, which is whsec_ and 24 to 64 random bytes in base64", file, len(all)+1)
		}
		secret, err := webhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, err
		}
		all = append(all, secret)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no secret: write one into it, such as that of: echo whsec_$(openssl rand -base64 32)", file)
	}
	return all, nil
}

// sign puts the id, the time and the signatures into the headers of a request.
func (s Secrets) sign(h http.Header, id string, at time.Time, body []byte) error {
	var signatures []string
	for _, secret := range s {
		one, err := secret.Sign(id, at, body)
		if err != nil {
			return err
		}
		signatures = append(signatures, one)
	}
	h.Set(webhooks.HeaderWebhookID, id)
	h.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(webhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}
