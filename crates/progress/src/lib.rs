//! Progress points, spans and synchronisation hooks; inert until a policy is installed
