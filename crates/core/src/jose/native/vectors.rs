//! An RSA public key and its signatures of [`MESSAGE`], in base64, for the self-test of the host.
//! OpenSSL made them once, and the private key was thrown away.

/// The signed message.
pub(super) const MESSAGE: &[u8] = b"impersonation-filter self-test";

/// The key, 2048 bits, as `SubjectPublicKeyInfo`.
pub(super) const RSA_KEY: &str = "\
    MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA0QNiFBec/KJxRTtXN6CKQFDmClURDZ8E4Smr\
    k7U9myq5KI04wmNtgjOBnC+7+yHjARloGJ4g8FKkZCSGjVQJZbYJ77uVQTH3JSZ+Mz4MVwAZJw4FUuQT\
    zMcLsKLNNtjEJ0kGVVyyjHxSAPCRaOsRBIjcTEpmF06I2PzAW55N35Cifkmvzpi1qQng7wGLvF6PSj6o\
    I6rMHMKiL9LQo+SPvLidU0/8CvtEXiDZjNj+Up5mEfzQHv0F26jdhdRAR2I2Fj0SE8hUdwryliHsbke4\
    g9hnJB5PKF8jujMvEVw9SI76bab0pYKHLjvqxTn/4s1XTCyHR3rpb1xfgs3IT9kmZwIDAQAB";

/// The signature by RS256.
pub(super) const RS256: &str = "\
    zmatcAZHSFi2cRv/ayCXpvFi7AnRM+URq9ofC/EcOAy4gkOvV7ok6erwW34XgUvhvg/tW9I9lM3R5Rl0\
    I8+iewB8rd6G/kQc4nGr1iITF656iguPHJEaVmeOMmGm+Yd3kZfUSDba1Rp36RFp7QUM6JzRLWkmhmRo\
    uerskKoPeJli5HsNg6wU7eY4UaE/Dqj0xXobqIvrb1r6x2HVKjiTE7v4y0htYsVB5QohJC/QUWfGp/I1\
    pA1cr5VKKi3XDGDfc6wWlxhvVfTtRRHLyynR9x0nwk+bNrDNE243RM8jFiDc8/DgZ0tLkHh2t3YS0d28\
    ZWgp/AfnvmKF0Q7jzNDUvg==";

/// The signature by RS384.
pub(super) const RS384: &str = "\
    qF1CULf2vzBVP7Aren48gZ1K5KWwzLjyuCzYTL5/hrGcZZ+dEf6NF4pz8fgKxlfCXuvAVQz7mmHU5S52\
    fcNTyZmZY8DMoQ8yyTM1JkvCf6FRKWfWJrw+tnz+QfN6uLIbE5Us5sbrpXSpzZGPbEOGX7CBcFaevnwv\
    7tIU1I7Aely8uThjkbiYDJHp1slQnMJEiUnAKKbp9mkCutAUJLAYqEOt/1JDcLK1PXPSp7X/09XUVt9P\
    iCC2B3ArgwsshH33HIoCnhxxuVgdMdCCnoNB57XS9QnUORwVRJXIlCELh0XLOZG7kzftLZd0CixSm4BT\
    XrbmIH6L+ErLZB5N3pSsWQ==";

/// The signature by RS512.
pub(super) const RS512: &str = "\
    Rb10rQbUKhodnXbE5wIgLPMfTKYtxIZ+42+JA+IVXAIJeab/li2nCgGbuekZizQBAdw0uwRy9BEvrg9Z\
    Da6wajWinN3mEpSXbIuKxTDkYBi/Jhy6QLV75lzQhBYym386twkcvnsYZm24xDStBVAiMHWDOortAi/F\
    DHBFoRR2bfIGeQeIdwBhEpru7YsHgodeLcXfVs203ujQ7BzoAeIIramkVMYbhb27t8hB9szTHOSDNXtO\
    Sge4iRrnowqvJtg9nwV8HvnojMMWouWDB6IobJArOJ4/BkdwBxh4Is6d6UM36YoS5XKe4J6DvZfSNLIk\
    kUZ89RM/2UziVgwgT3m2Uw==";
