package cli

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/highwater/highwater/internal/metadata"
)

// The bounds of Kafka's SCRAM mechanisms.
const (
	scramMinIterations = 4096
	scramMaxIterations = 16384
)

// parseScrams reads what --add-scram was given: SCRAM-SHA-256=[name=alice,password=secret].
func parseScrams(args []string) ([]*metadata.ScramCredential, error) {
	var out []*metadata.ScramCredential
	for _, a := range args {
		c, err := parseScram(strings.TrimSpace(a))
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func parseScram(arg string) (*metadata.ScramCredential, error) {
	mechanism, text, ok := strings.Cut(arg, "=")
	if !ok {
		return nil, tersef("Failed to find equals sign in SCRAM argument '%s'", arg)
	}
	c := &metadata.ScramCredential{Iterations: scramMinIterations}
	var digest func() hash.Hash
	size, shown := 0, ""
	switch mechanism {
	case "SCRAM-SHA-256":
		c.Mechanism, digest, size, shown = metadata.ScramSHA256, sha256.New, sha256.Size, "SCRAM_SHA_256"
	case "SCRAM-SHA-512":
		c.Mechanism, digest, size, shown = metadata.ScramSHA512, sha512.New, sha512.Size, "SCRAM_SHA_512"
	default:
		return nil, tersef("The add-scram mechanism %s is not supported.", mechanism)
	}
	switch {
	case !strings.HasPrefix(text, "["):
		return nil, terse("Expected configuration string to start with [")
	case !strings.HasSuffix(text, "]"):
		return nil, terse("Expected configuration string to end with ]")
	}
	given := make(map[string]string)
	for _, part := range strings.Split(text[1:len(text)-1], ",") {
		k, v, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return nil, tersef("No equals sign found in SCRAM component: %s", strings.TrimSpace(part))
		}
		if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
			v = v[1 : len(v)-1]
		}
		given[k] = v
	}
	take := func(key string) (string, bool) {
		v, ok := given[key]
		delete(given, key)
		return v, ok
	}
	if c.User, ok = take("name"); !ok {
		return nil, terse("You must supply 'name' to add-scram")
	}
	var err error
	salt, hasSalt := take("salt")
	if hasSalt {
		if c.Salt, err = base64.StdEncoding.DecodeString(salt); err != nil {
			return nil, tersef("Failed to decode given salt: %s", salt)
		}
	}
	if s, ok := take("iterations"); ok {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return nil, tersef("Failed to parse iterations count: %s", s)
		}
		c.Iterations = int32(n)
	}
	password, hasPassword := take("password")
	saltedText, hasSalted := take("saltedpassword")
	var salted []byte
	switch {
	case hasPassword:
	case !hasSalted:
		return nil, terse("You must supply one of 'password' or 'saltedpassword' to add-scram")
	case !hasSalt:
		return nil, terse("You must supply 'salt' with 'saltedpassword' to add-scram")
	default:
		if salted, err = base64.StdEncoding.DecodeString(saltedText); err != nil {
			return nil, tersef("Failed to decode given saltedPassword: %s", saltedText)
		}
	}
	if len(given) > 0 {
		return nil, tersef("Unknown SCRAM configurations: %s", strings.Join(sortedKeys(given), ", "))
	}
	switch {
	case c.Iterations < scramMinIterations:
		return nil, tersef("The 'iterations' value must be >= %d for add-scram using %s", scramMinIterations, shown)
	case c.Iterations > scramMaxIterations:
		return nil, tersef("The 'iterations' value must be <= %d for add-scram using %s", scramMaxIterations, shown)
	}
	if !hasSalt {
		if c.Salt, err = randomSalt(); err != nil {
			return nil, err
		}
	}
	if hasPassword {
		if salted, err = pbkdf2.Key(digest, password, c.Salt, int(c.Iterations), size); err != nil {
			return nil, fmt.Errorf("salt password: %w", err)
		}
	}
	mac := func(key []byte, text string) []byte {
		h := hmac.New(digest, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored := digest()
	stored.Write(mac(salted, "Client Key"))
	c.StoredKey = stored.Sum(nil)
	c.ServerKey = mac(salted, "Server Key")
	return c, nil
}

// randomSalt is 130 random bits in base 36, as text: that is how Kafka draws it.
func randomSalt() ([]byte, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 130))
	if err != nil {
		return nil, fmt.Errorf("draw random bytes: %w", err)
	}
	return slices.Clone([]byte(n.Text(36))), nil
}
